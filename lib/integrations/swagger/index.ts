export { ApiLocked } from './api-locked.decorator.js';
