import { jest } from '@jest/globals';
import { Get, Injectable } from '@nestjs/common';
import { OptimisticLockVersionMismatchError } from 'typeorm';
import { currentLock, DistributedLock, LockConfigError } from '../../lib/index.js';
import {
  RetryOnConflict,
  type RetryOnConflictOptions,
  VersionConflictError,
} from '../../lib/providers/typeorm/index.js';
import { close, start } from '../nest/apps.js';

const conflict = () => new VersionConflictError('written by another caller');
type Untyped = MethodDecorator & PropertyDecorator & ClassDecorator;
const Retried = (options?: RetryOnConflictOptions) => RetryOnConflict(options) as unknown as Untyped;

describe('@RetryOnConflict', () => {
  afterEach(() => {
    jest.restoreAllMocks();
  });

  /** Runs a method that throws each of `errors` in turn, then succeeds. */
  async function call(errors: readonly Error[], options?: RetryOnConflictOptions) {
    const left = [...errors];
    let runs = 0;
    class Accounts {
      readonly answer = 'done';
      @RetryOnConflict(options)
      async deposit(to: string): Promise<string> {
        runs += 1;
        const error = left.shift();
        if (error) throw error;
        return `${to} ${this.answer}`;
      }
    }
    const outcome = await new Accounts().deposit('Ann').catch((error: unknown) => error);
    return { runs, outcome };
  }

  it('runs the method again after a conflict, with its arguments and its instance', async () => {
    expect(await call([])).toEqual({ runs: 1, outcome: 'Ann done' });
    expect(await call([conflict()])).toEqual({ runs: 2, outcome: 'Ann done' });
    const theirs = new OptimisticLockVersionMismatchError('account', 1, 2);
    expect(await call([theirs, conflict()])).toEqual({ runs: 3, outcome: 'Ann done' });
  });

  it('passes on the last conflict unchanged', async () => {
    const errors = [conflict(), conflict(), conflict(), conflict()];
    expect(await call(errors)).toEqual({ runs: 3, outcome: errors[2] });
    const { runs, outcome } = await call(errors, { attempts: 1 });
    expect(runs).toBe(1);
    expect(outcome).toBe(errors[0]);
  });

  it('passes on every other error immediately', async () => {
    const error = new Error('of the method');
    const { runs, outcome } = await call([error]);
    expect(runs).toBe(1);
    expect(outcome).toBe(error);
  });

  it('pauses for a random time, up to a bound that doubles', async () => {
    const random = jest.spyOn(Math, 'random').mockReturnValue(1);
    const startedAt = performance.now();
    await call([conflict(), conflict(), conflict()], { attempts: 4 });
    // 20 + 40 + 80. A timer may fire 1 ms early.
    expect(performance.now() - startedAt).toBeGreaterThan(130);
    expect(random).toHaveBeenCalledTimes(3);
  });

  it('keeps the name, length and metadata of the method', () => {
    class Accounts {
      @RetryOnConflict()
      @Get('deposit')
      async deposit(_to: string, _amount: number) {}
    }
    const { deposit } = Accounts.prototype;
    expect(deposit.name).toBe('deposit');
    expect(deposit.length).toBe(2);
    expect(Reflect.getMetadata('path', deposit)).toBe('deposit');
  });

  it('runs all attempts under one hold below @DistributedLock', async () => {
    const tokens: unknown[] = [];
    @Injectable()
    class Accounts {
      @DistributedLock('account:#{id}')
      @RetryOnConflict()
      async deposit(id: number): Promise<string> {
        tokens.push(currentLock(`account:${id}`).fencingToken);
        if (tokens.length < 3) throw conflict();
        return 'done';
      }
    }
    const app = await start({ providers: [Accounts] });
    expect(await app.get(Accounts).deposit(42)).toBe('done');
    expect(tokens).toEqual([tokens[0], tokens[0], tokens[0]]);
    await close(app);
  });

  it("rejects what can't run again, and invalid options", () => {
    const refused = (decorate: () => unknown, why: RegExp) => {
      expect(decorate).toThrow(LockConfigError);
      expect(decorate).toThrow(why);
    };
    refused(() => {
      class Accounts {
        @Retried()
        *rows() {
          yield 1;
        }
      }
      return Accounts;
    }, /^Accounts\.rows is synchronous, but @RetryOnConflict has to wait: make it async/);
    refused(() => {
      class Accounts {
        @Retried()
        count(): number {
          return 1;
        }
      }
      return Accounts;
    }, /^Accounts\.count is synchronous/);
    refused(() => {
      class Accounts {
        @Retried()
        async *rows() {
          yield 1;
        }
      }
      return Accounts;
    }, /^Accounts\.rows is a generator/);
    refused(() => {
      @Retried()
      class Accounts {}
      return Accounts;
    }, /@RetryOnConflict is on the class Accounts/);
    refused(() => RetryOnConflict({ attempts: 0 }), /"attempts" is 0, but must be a whole number >= 1/);
    refused(() => RetryOnConflict({ attempts: 1.5 }), /"attempts"/);
  });
});
