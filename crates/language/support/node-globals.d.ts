// The parts of Node that deserve real types: what programs touch most, and what decides control flow.

declare namespace NodeJS {
  class Untyped {
    constructor(...args: any[]);
    static [member: string]: any;
    [member: string]: any;
  }
  interface Timeout {
    ref(): this;
    unref(): this;
    hasRef(): boolean;
    refresh(): this;
    [Symbol.toPrimitive](): number;
  }
  interface Immediate {
    ref(): this;
    unref(): this;
    hasRef(): boolean;
  }
  type Timer = Timeout;
  interface ProcessEnv {
    [name: string]: string | undefined;
  }
  interface ErrnoException extends Error {
    code?: string;
    errno?: number;
    path?: string;
    syscall?: string;
  }
  interface MemoryUsage {
    rss: number;
    heapTotal: number;
    heapUsed: number;
    external: number;
    arrayBuffers: number;
  }
  interface ReadableStream {
    isTTY?: boolean;
    [Symbol.asyncIterator](): AsyncIterableIterator<any>;
    [member: string]: any;
  }
  interface WritableStream {
    isTTY?: boolean;
    columns?: number;
    write(chunk: string | Uint8Array, ...rest: any[]): boolean;
    [member: string]: any;
  }
  interface Process {
    argv: string[];
    argv0: string;
    execArgv: string[];
    execPath: string;
    env: ProcessEnv;
    exitCode?: number | string;
    pid: number;
    ppid: number;
    platform: string;
    arch: string;
    version: string;
    versions: { [name: string]: string };
    stdin: ReadableStream & { fd: number };
    stdout: WritableStream & { fd: number };
    stderr: WritableStream & { fd: number };
    cwd(): string;
    chdir(directory: string): void;
    exit(code?: number | string): never;
    abort(): never;
    uptime(): number;
    memoryUsage: { (): MemoryUsage; rss(): number };
    hrtime: { (earlier?: [number, number]): [number, number]; bigint(): bigint };
    nextTick(callback: (...args: any[]) => void, ...args: any[]): void;
    on(event: string, listener: (...args: any[]) => void): this;
    once(event: string, listener: (...args: any[]) => void): this;
    [member: string]: any;
  }
  interface Require {
    (id: string): any;
    resolve(id: string): string;
    main: any;
    cache: any;
  }
}

interface Console {
  assert(condition?: unknown, ...data: unknown[]): void;
  clear(): void;
  count(label?: string): void;
  countReset(label?: string): void;
  debug(...data: unknown[]): void;
  dir(item?: unknown, options?: object): void;
  dirxml(...data: unknown[]): void;
  error(...data: unknown[]): void;
  group(...data: unknown[]): void;
  groupCollapsed(...data: unknown[]): void;
  groupEnd(): void;
  info(...data: unknown[]): void;
  log(...data: unknown[]): void;
  table(data?: unknown, columns?: readonly string[]): void;
  time(label?: string): void;
  timeEnd(label?: string): void;
  timeLog(label?: string, ...data: unknown[]): void;
  trace(...data: unknown[]): void;
  warn(...data: unknown[]): void;
}

type BufferEncoding =
  | "ascii" | "utf8" | "utf-8" | "utf16le" | "ucs2" | "ucs-2" | "base64" | "base64url" | "latin1" | "binary" | "hex";

interface Buffer extends Uint8Array {
  toString(encoding?: BufferEncoding, start?: number, end?: number): string;
  equals(other: Uint8Array): boolean;
  slice(start?: number, end?: number): Buffer;
  subarray(start?: number, end?: number): Buffer;
  [member: string]: any;
}

interface BufferConstructor {
  new (...args: any[]): Buffer;
  alloc(size: number, fill?: any, encoding?: BufferEncoding): Buffer;
  allocUnsafe(size: number): Buffer;
  byteLength(value: any, encoding?: BufferEncoding): number;
  compare(one: Uint8Array, other: Uint8Array): -1 | 0 | 1;
  concat(list: readonly Uint8Array[], length?: number): Buffer;
  from(value: any, encodingOrOffset?: any, length?: number): Buffer;
  isBuffer(value: any): value is Buffer;
  isEncoding(name: string): boolean;
}

interface ImportMeta {
  url: string;
  dirname: string;
  filename: string;
  resolve(id: string): string;
}

declare var process: NodeJS.Process;
declare var console: Console;
declare var Buffer: BufferConstructor;
declare var global: typeof globalThis & { [name: string]: any };
declare var require: NodeJS.Require;
declare var module: any;
declare var exports: any;
declare var __filename: string;
declare var __dirname: string;

declare function setTimeout(callback: (...args: any[]) => void, delay?: number, ...args: any[]): NodeJS.Timeout;
declare function setInterval(callback: (...args: any[]) => void, delay?: number, ...args: any[]): NodeJS.Timeout;
declare function setImmediate(callback: (...args: any[]) => void, ...args: any[]): NodeJS.Immediate;
declare function clearTimeout(timer?: NodeJS.Timeout | number | string): void;
declare function clearInterval(timer?: NodeJS.Timeout | number | string): void;
declare function clearImmediate(timer?: NodeJS.Immediate): void;
declare function queueMicrotask(callback: () => void): void;
declare function structuredClone<T>(value: T, options?: any): T;
