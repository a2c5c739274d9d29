import type { Socket } from 'node:net';

export declare function reset(socket: Socket): void;
