/** The statements that were sent on a connection and are not answered yet. */
export class StatementsUnderWay {
  readonly #rejections = new Set<(reason: unknown) => void>();
  readonly #idle: (() => void)[] = [];

  get size(): number {
    return this.#rejections.size;
  }

  /** What the server answers to `statement`. Rejects when the connection is closed before. */
  add<T>(statement: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#rejections.add(reject);
      statement.then(
        (answer) => {
          this.#delete(reject);
          resolve(answer);
        },
        (error: unknown) => {
          this.#delete(reject);
          reject(error);
        },
      );
    });
  }

  /** When none is under way any more. */
  async end(): Promise<void> {
    if (this.size > 0) await new Promise<void>((resolve) => this.#idle.push(resolve));
  }

  /** The connection is closed: a driver may never answer what was under way on it (mysql2 does not). */
  abandon(reason: Error): void {
    for (const reject of this.#rejections) {
      reject(reason);
      this.#delete(reject);
    }
  }

  #delete(reject: (reason: unknown) => void): void {
    this.#rejections.delete(reject);
    if (this.size === 0) for (const resolve of this.#idle.splice(0)) resolve();
  }
}
