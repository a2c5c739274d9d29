import { load, managed } from './lock-manager.mjs';

const LEASE = 300;

export const title = 'memory, one process';
export const workers = 1;
export const recovery = LEASE + 1_000;
export const lifetime = LEASE;
export const fair = true;
export const faults = ['worker paused', 'event loop blocked', 'client clock stepped'];
export const allows = {};

export const startBackend = () => ({ servers: [], remainingLocks: () => [], stop: () => undefined });

export async function connect({ library }) {
  const { MemoryLockProvider } = await load(library, 'providers/memory/memory-lock-provider.js');
  return managed({ library, provider: new MemoryLockProvider(), options: { lease: LEASE }, lifetime: LEASE });
}
