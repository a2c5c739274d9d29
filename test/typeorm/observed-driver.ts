import * as mysql2 from 'mysql2';
import pg from 'pg';
import { DataSource } from 'typeorm';

/**
 * Called before a lock statement is sent, which waits for the returned promise and gets the changes made to `values`.
 * `answered` resolves when its reply arrives.
 */
export type Observer = (
  sql: string,
  values: unknown[],
  answered: Promise<void>,
  connection: object,
) => Promise<unknown> | undefined;

type Callback = (error: unknown, ...answer: unknown[]) => unknown;
type Send = (statement: string | object, values: unknown, callback: Callback) => unknown;

/** Returns the same DataSource with its own driver, through which a test sees each lock statement and can delay it. */
export function observed({ options }: DataSource, observer: Observer): DataSource {
  const observe = <C extends object>(connection: C): C => {
    for (const name of ['query', 'execute']) {
      const send = Reflect.get(connection, name) as Send | undefined;
      if (send) Reflect.set(connection, name, observedSend(connection, send, observer));
    }
    return connection;
  };
  class Client extends pg.Client {
    constructor(settings: pg.ClientConfig) {
      super(settings);
      observe(this);
    }
  }
  const driver =
    options.type === 'postgres'
      ? { ...pg, Client }
      : { ...mysql2, createConnection: (uri: string) => observe(mysql2.createConnection(uri)) };
  return new DataSource({ ...options, driver });
}

function observedSend(connection: object, send: Send, observer: Observer): Send {
  return (statement, values, callback) => {
    const { sql = '', text = sql }: Sql = typeof statement === 'string' ? { sql: statement } : statement;
    let onAnswer!: () => void;
    const answered = new Promise<void>((resolve) => (onAnswer = resolve));
    const isSent = observer(text, (values ?? []) as unknown[], answered, connection);
    const sendNow = () => {
      const onResult: Callback = (...answer) => {
        onAnswer();
        callback(...answer);
      };
      Reflect.apply(send, connection, [statement, values, onResult]);
    };
    if (isSent) isSent.then(sendNow, callback);
    else sendNow();
  };
}

interface Sql {
  /** mysql2's property. */
  readonly sql?: string;
  /** pg's property. */
  readonly text?: string;
}

const KINDS: readonly (readonly [name: string, form: RegExp])[] = [
  ['look', /^SELECT .* AS server_time FROM \S+ WHERE name (?!>=)/],
  ['page', /^SELECT .* AS server_time FROM \S+ WHERE name >=/],
  ['limited reservation', /^UPDATE \S+ SET holder = NULL, holders = .* token = GREATEST/],
  ['limited claim', /^UPDATE \S+ SET holder = NULL, holders = /],
  ['limited renewal', /^UPDATE \S+ SET holders = .*, expires = /],
  ['limited release', /^UPDATE \S+ SET holders = /],
  ['claim', /^UPDATE \S+ SET token = .*, holder = .*, holders = NULL/],
  ['renewal', /^UPDATE \S+ SET expires = /],
  ['release', /^UPDATE \S+ SET holder = NULL, expires = /],
];

/** Returns what a lease statement does, or undefined for any other statement. */
export function kindOf(sql: string): string | undefined {
  return KINDS.find(([, form]) => form.test(sql))?.[0];
}
