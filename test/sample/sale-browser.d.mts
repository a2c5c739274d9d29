// The parts of playwright-core that the test uses. Its own types require DOM types, which this project doesn't have.
export interface Locator {
  count(): Promise<number>;
  first(): Locator;
  filter(options: { readonly hasText: string | RegExp }): Locator;
  locator(selector: string): Locator;
  innerText(): Promise<string>;
  allInnerTexts(): Promise<string[]>;
  focus(): Promise<void>;
  press(key: string): Promise<void>;
  waitFor(): Promise<void>;
}

export interface Page {
  readonly keyboard: { press(key: string): Promise<void> };
  on(event: 'console', listener: (message: { type(): string; text(): string }) => void): void;
  on(event: 'pageerror', listener: (error: Error) => void): void;
  on(event: 'request', listener: (request: { url(): string }) => void): void;
  goto(url: string): Promise<unknown>;
  getByRole(role: string): Locator;
  locator(selector: string, options?: { readonly has: Locator }): Locator;
  emulateMedia(media: { readonly colorScheme?: 'light' | 'dark'; readonly reducedMotion?: 'reduce' }): Promise<void>;
  setDefaultTimeout(timeout: number): void;
  setViewportSize(size: { readonly width: number; readonly height: number }): Promise<void>;
}

export interface Browser {
  newPage(options: {
    readonly viewport: { readonly width: number; readonly height: number };
    readonly colorScheme: 'light' | 'dark';
  }): Promise<Page>;
  close(): Promise<void>;
}

export const browserPath: string | undefined;
export function launchBrowser(): Promise<Browser>;
export function startSale(
  ...options: string[]
): Promise<{ readonly url: string; readonly output: string; stop(): Promise<number | null> }>;
export function freezeHolder(page: Page): Promise<void>;
export function closed(page: Page): Promise<void>;
export function countClasses(elements: Locator): Promise<Record<string, number>>;
export function styleOf(element: Locator, property: string): Promise<string>;
export function overflowing(page: Page): Promise<string[]>;
export function contrastBelow(page: Page, least: number): Promise<string[]>;
