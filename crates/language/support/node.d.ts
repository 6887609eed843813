// Made by generate-node-types.mjs from the names that Node exports. Do not edit.

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

declare class AbortController extends NodeJS.Untyped {}
declare class AbortSignal extends NodeJS.Untyped {}
declare class Blob extends NodeJS.Untyped {}
declare class BroadcastChannel extends NodeJS.Untyped {}
declare class ByteLengthQueuingStrategy extends NodeJS.Untyped {}
declare class CompressionStream extends NodeJS.Untyped {}
declare class CountQueuingStrategy extends NodeJS.Untyped {}
declare class Crypto extends NodeJS.Untyped {}
declare class CryptoKey extends NodeJS.Untyped {}
declare class CustomEvent extends NodeJS.Untyped {}
declare class DOMException extends NodeJS.Untyped {}
declare class DecompressionStream extends NodeJS.Untyped {}
declare class Event extends NodeJS.Untyped {}
declare class EventTarget extends NodeJS.Untyped {}
declare class File extends NodeJS.Untyped {}
declare class FormData extends NodeJS.Untyped {}
declare class Headers extends NodeJS.Untyped {}
declare class MessageChannel extends NodeJS.Untyped {}
declare class MessageEvent extends NodeJS.Untyped {}
declare class MessagePort extends NodeJS.Untyped {}
declare class Performance extends NodeJS.Untyped {}
declare class PerformanceEntry extends NodeJS.Untyped {}
declare class PerformanceMark extends NodeJS.Untyped {}
declare class PerformanceMeasure extends NodeJS.Untyped {}
declare class PerformanceObserver extends NodeJS.Untyped {}
declare class PerformanceObserverEntryList extends NodeJS.Untyped {}
declare class PerformanceResourceTiming extends NodeJS.Untyped {}
declare class ReadableByteStreamController extends NodeJS.Untyped {}
declare class ReadableStream extends NodeJS.Untyped {}
declare class ReadableStreamBYOBReader extends NodeJS.Untyped {}
declare class ReadableStreamBYOBRequest extends NodeJS.Untyped {}
declare class ReadableStreamDefaultController extends NodeJS.Untyped {}
declare class ReadableStreamDefaultReader extends NodeJS.Untyped {}
declare class Request extends NodeJS.Untyped {}
declare class Response extends NodeJS.Untyped {}
declare class SubtleCrypto extends NodeJS.Untyped {}
declare class TextDecoder extends NodeJS.Untyped {}
declare class TextDecoderStream extends NodeJS.Untyped {}
declare class TextEncoder extends NodeJS.Untyped {}
declare class TextEncoderStream extends NodeJS.Untyped {}
declare class TransformStream extends NodeJS.Untyped {}
declare class TransformStreamDefaultController extends NodeJS.Untyped {}
declare class URL extends NodeJS.Untyped {}
declare class URLSearchParams extends NodeJS.Untyped {}
declare class WritableStream extends NodeJS.Untyped {}
declare class WritableStreamDefaultController extends NodeJS.Untyped {}
declare class WritableStreamDefaultWriter extends NodeJS.Untyped {}
declare var atob: any, btoa: any, crypto: any, fetch: any, performance: any;

declare module "assert" {
  function $(...args: any[]): any;
  namespace $ {
    class AssertionError extends NodeJS.Untyped {}
    class CallTracker extends NodeJS.Untyped {}
    const fail: any, ok: any, equal: any, notEqual: any, deepEqual: any, notDeepEqual: any;
    const deepStrictEqual: any, notDeepStrictEqual: any, strictEqual: any, notStrictEqual: any, throws: any;
    const rejects: any, doesNotThrow: any, doesNotReject: any, ifError: any, match: any, doesNotMatch: any;
    const strict: any;
  }
  export = $;
}
declare module "node:assert" {
  import $ = require("assert");
  export = $;
}
declare module "assert/strict" {
  function $(...args: any[]): any;
  namespace $ {
    class AssertionError extends NodeJS.Untyped {}
    class CallTracker extends NodeJS.Untyped {}
    const fail: any, ok: any, equal: any, notEqual: any, deepEqual: any, notDeepEqual: any;
    const deepStrictEqual: any, notDeepStrictEqual: any, strictEqual: any, notStrictEqual: any, throws: any;
    const rejects: any, doesNotThrow: any, doesNotReject: any, ifError: any, match: any, doesNotMatch: any;
    const strict: any;
  }
  export = $;
}
declare module "node:assert/strict" {
  import $ = require("assert/strict");
  export = $;
}
declare module "async_hooks" {
  namespace $ {
    class AsyncLocalStorage extends NodeJS.Untyped {}
    class AsyncResource extends NodeJS.Untyped {}
    const createHook: any, executionAsyncId: any, triggerAsyncId: any, executionAsyncResource: any;
    const asyncWrapProviders: any;
  }
  export = $;
}
declare module "node:async_hooks" {
  import $ = require("async_hooks");
  export = $;
}
declare module "buffer" {
  namespace $ {
    class Buffer extends NodeJS.Untyped {}
    class SlowBuffer extends NodeJS.Untyped {}
    class Blob extends NodeJS.Untyped {}
    class File extends NodeJS.Untyped {}
    const transcode: any, isUtf8: any, isAscii: any, kMaxLength: any, kStringMaxLength: any, btoa: any;
    const atob: any, constants: any, INSPECT_MAX_BYTES: any, resolveObjectURL: any;
  }
  export = $;
}
declare module "node:buffer" {
  import $ = require("buffer");
  export = $;
}
declare module "child_process" {
  namespace $ {
    class ChildProcess extends NodeJS.Untyped {}
    const _forkChild: any, exec: any, execFile: any, execFileSync: any, execSync: any, fork: any, spawn: any;
    const spawnSync: any;
    type ExecOptions = any;
    type SpawnOptions = any;
    type SpawnSyncReturns = any;
    type ExecException = any;
    type ChildProcessWithoutNullStreams = any;
  }
  export = $;
}
declare module "node:child_process" {
  import $ = require("child_process");
  export = $;
}
declare module "cluster" {
  namespace $ {
    class Worker extends NodeJS.Untyped {}
    const _events: any, _eventsCount: any, _maxListeners: any, isWorker: any, isMaster: any, isPrimary: any;
    const workers: any, settings: any, SCHED_NONE: any, SCHED_RR: any, schedulingPolicy: any;
    const setupPrimary: any, setupMaster: any, fork: any, disconnect: any;
  }
  export = $;
}
declare module "node:cluster" {
  import $ = require("cluster");
  export = $;
}
declare module "console" {
  namespace $ {
    class Console extends NodeJS.Untyped {}
    const log: any, warn: any, dir: any, time: any, timeEnd: any, timeLog: any, trace: any, assert: any;
    const clear: any, count: any, countReset: any, group: any, groupEnd: any, table: any, debug: any;
    const info: any, dirxml: any, error: any, groupCollapsed: any, profile: any, profileEnd: any;
    const timeStamp: any, context: any, createTask: any;
  }
  export = $;
}
declare module "node:console" {
  import $ = require("console");
  export = $;
}
declare module "constants" {
  namespace $ {
    const RTLD_LAZY: any, RTLD_NOW: any, RTLD_GLOBAL: any, RTLD_LOCAL: any, RTLD_DEEPBIND: any, E2BIG: any;
    const EACCES: any, EADDRINUSE: any, EADDRNOTAVAIL: any, EAFNOSUPPORT: any, EAGAIN: any, EALREADY: any;
    const EBADF: any, EBADMSG: any, EBUSY: any, ECANCELED: any, ECHILD: any, ECONNABORTED: any;
    const ECONNREFUSED: any, ECONNRESET: any, EDEADLK: any, EDESTADDRREQ: any, EDOM: any, EDQUOT: any;
    const EEXIST: any, EFAULT: any, EFBIG: any, EHOSTUNREACH: any, EIDRM: any, EILSEQ: any, EINPROGRESS: any;
    const EINTR: any, EINVAL: any, EIO: any, EISCONN: any, EISDIR: any, ELOOP: any, EMFILE: any, EMLINK: any;
    const EMSGSIZE: any, EMULTIHOP: any, ENAMETOOLONG: any, ENETDOWN: any, ENETRESET: any, ENETUNREACH: any;
    const ENFILE: any, ENOBUFS: any, ENODATA: any, ENODEV: any, ENOENT: any, ENOEXEC: any, ENOLCK: any;
    const ENOLINK: any, ENOMEM: any, ENOMSG: any, ENOPROTOOPT: any, ENOSPC: any, ENOSR: any, ENOSTR: any;
    const ENOSYS: any, ENOTCONN: any, ENOTDIR: any, ENOTEMPTY: any, ENOTSOCK: any, ENOTSUP: any, ENOTTY: any;
    const ENXIO: any, EOPNOTSUPP: any, EOVERFLOW: any, EPERM: any, EPIPE: any, EPROTO: any;
    const EPROTONOSUPPORT: any, EPROTOTYPE: any, ERANGE: any, EROFS: any, ESPIPE: any, ESRCH: any, ESTALE: any;
    const ETIME: any, ETIMEDOUT: any, ETXTBSY: any, EWOULDBLOCK: any, EXDEV: any, PRIORITY_LOW: any;
    const PRIORITY_BELOW_NORMAL: any, PRIORITY_NORMAL: any, PRIORITY_ABOVE_NORMAL: any, PRIORITY_HIGH: any;
    const PRIORITY_HIGHEST: any, SIGHUP: any, SIGINT: any, SIGQUIT: any, SIGILL: any, SIGTRAP: any;
    const SIGABRT: any, SIGIOT: any, SIGBUS: any, SIGFPE: any, SIGKILL: any, SIGUSR1: any, SIGSEGV: any;
    const SIGUSR2: any, SIGPIPE: any, SIGALRM: any, SIGTERM: any, SIGCHLD: any, SIGSTKFLT: any, SIGCONT: any;
    const SIGSTOP: any, SIGTSTP: any, SIGTTIN: any, SIGTTOU: any, SIGURG: any, SIGXCPU: any, SIGXFSZ: any;
    const SIGVTALRM: any, SIGPROF: any, SIGWINCH: any, SIGIO: any, SIGPOLL: any, SIGPWR: any, SIGSYS: any;
    const UV_FS_SYMLINK_DIR: any, UV_FS_SYMLINK_JUNCTION: any, O_RDONLY: any, O_WRONLY: any, O_RDWR: any;
    const UV_DIRENT_UNKNOWN: any, UV_DIRENT_FILE: any, UV_DIRENT_DIR: any, UV_DIRENT_LINK: any;
    const UV_DIRENT_FIFO: any, UV_DIRENT_SOCKET: any, UV_DIRENT_CHAR: any, UV_DIRENT_BLOCK: any;
    const EXTENSIONLESS_FORMAT_JAVASCRIPT: any, EXTENSIONLESS_FORMAT_WASM: any, S_IFMT: any, S_IFREG: any;
    const S_IFDIR: any, S_IFCHR: any, S_IFBLK: any, S_IFIFO: any, S_IFLNK: any, S_IFSOCK: any, O_CREAT: any;
    const O_EXCL: any, UV_FS_O_FILEMAP: any, O_NOCTTY: any, O_TRUNC: any, O_APPEND: any, O_DIRECTORY: any;
    const O_NOATIME: any, O_NOFOLLOW: any, O_SYNC: any, O_DSYNC: any, O_DIRECT: any, O_NONBLOCK: any;
    const S_IRWXU: any, S_IRUSR: any, S_IWUSR: any, S_IXUSR: any, S_IRWXG: any, S_IRGRP: any, S_IWGRP: any;
    const S_IXGRP: any, S_IRWXO: any, S_IROTH: any, S_IWOTH: any, S_IXOTH: any, F_OK: any, R_OK: any;
    const W_OK: any, X_OK: any, UV_FS_COPYFILE_EXCL: any, COPYFILE_EXCL: any, UV_FS_COPYFILE_FICLONE: any;
    const COPYFILE_FICLONE: any, UV_FS_COPYFILE_FICLONE_FORCE: any, COPYFILE_FICLONE_FORCE: any;
    const OPENSSL_VERSION_NUMBER: any, SSL_OP_ALL: any, SSL_OP_ALLOW_NO_DHE_KEX: any;
    const SSL_OP_ALLOW_UNSAFE_LEGACY_RENEGOTIATION: any, SSL_OP_CIPHER_SERVER_PREFERENCE: any;
    const SSL_OP_CISCO_ANYCONNECT: any, SSL_OP_COOKIE_EXCHANGE: any, SSL_OP_CRYPTOPRO_TLSEXT_BUG: any;
    const SSL_OP_DONT_INSERT_EMPTY_FRAGMENTS: any, SSL_OP_LEGACY_SERVER_CONNECT: any;
    const SSL_OP_NO_COMPRESSION: any, SSL_OP_NO_ENCRYPT_THEN_MAC: any, SSL_OP_NO_QUERY_MTU: any;
    const SSL_OP_NO_RENEGOTIATION: any, SSL_OP_NO_SESSION_RESUMPTION_ON_RENEGOTIATION: any;
    const SSL_OP_NO_SSLv2: any, SSL_OP_NO_SSLv3: any, SSL_OP_NO_TICKET: any, SSL_OP_NO_TLSv1: any;
    const SSL_OP_NO_TLSv1_1: any, SSL_OP_NO_TLSv1_2: any, SSL_OP_NO_TLSv1_3: any;
    const SSL_OP_PRIORITIZE_CHACHA: any, SSL_OP_TLS_ROLLBACK_BUG: any, ENGINE_METHOD_RSA: any;
    const ENGINE_METHOD_DSA: any, ENGINE_METHOD_DH: any, ENGINE_METHOD_RAND: any, ENGINE_METHOD_EC: any;
    const ENGINE_METHOD_CIPHERS: any, ENGINE_METHOD_DIGESTS: any, ENGINE_METHOD_PKEY_METHS: any;
    const ENGINE_METHOD_PKEY_ASN1_METHS: any, ENGINE_METHOD_ALL: any, ENGINE_METHOD_NONE: any;
    const DH_CHECK_P_NOT_SAFE_PRIME: any, DH_CHECK_P_NOT_PRIME: any, DH_UNABLE_TO_CHECK_GENERATOR: any;
    const DH_NOT_SUITABLE_GENERATOR: any, RSA_PKCS1_PADDING: any, RSA_NO_PADDING: any;
    const RSA_PKCS1_OAEP_PADDING: any, RSA_X931_PADDING: any, RSA_PKCS1_PSS_PADDING: any;
    const RSA_PSS_SALTLEN_DIGEST: any, RSA_PSS_SALTLEN_MAX_SIGN: any, RSA_PSS_SALTLEN_AUTO: any;
    const defaultCoreCipherList: any, TLS1_VERSION: any, TLS1_1_VERSION: any, TLS1_2_VERSION: any;
    const TLS1_3_VERSION: any, POINT_CONVERSION_COMPRESSED: any, POINT_CONVERSION_UNCOMPRESSED: any;
    const POINT_CONVERSION_HYBRID: any, defaultCipherList: any;
  }
  export = $;
}
declare module "node:constants" {
  import $ = require("constants");
  export = $;
}
declare module "crypto" {
  namespace $ {
    class Certificate extends NodeJS.Untyped {}
    class Cipher extends NodeJS.Untyped {}
    class Cipheriv extends NodeJS.Untyped {}
    class Decipher extends NodeJS.Untyped {}
    class Decipheriv extends NodeJS.Untyped {}
    class DiffieHellman extends NodeJS.Untyped {}
    class DiffieHellmanGroup extends NodeJS.Untyped {}
    class ECDH extends NodeJS.Untyped {}
    class Hash extends NodeJS.Untyped {}
    class Hmac extends NodeJS.Untyped {}
    class KeyObject extends NodeJS.Untyped {}
    class Sign extends NodeJS.Untyped {}
    class Verify extends NodeJS.Untyped {}
    class X509Certificate extends NodeJS.Untyped {}
    const checkPrime: any, checkPrimeSync: any, createCipheriv: any, createDecipheriv: any;
    const createDiffieHellman: any, createDiffieHellmanGroup: any, createECDH: any, createHash: any;
    const createHmac: any, createPrivateKey: any, createPublicKey: any, createSecretKey: any, createSign: any;
    const createVerify: any, diffieHellman: any, generatePrime: any, generatePrimeSync: any, getCiphers: any;
    const getCipherInfo: any, getCurves: any, getDiffieHellman: any, getHashes: any, hkdf: any, hkdfSync: any;
    const pbkdf2: any, pbkdf2Sync: any, generateKeyPair: any, generateKeyPairSync: any, generateKey: any;
    const generateKeySync: any, privateDecrypt: any, privateEncrypt: any, publicDecrypt: any;
    const publicEncrypt: any, randomBytes: any, randomFill: any, randomFillSync: any, randomInt: any;
    const randomUUID: any, scrypt: any, scryptSync: any, sign: any, setEngine: any, timingSafeEqual: any;
    const getFips: any, setFips: any, verify: any, hash: any, secureHeapUsed: any, constants: any;
    const webcrypto: any, subtle: any, getRandomValues: any;
    type BinaryLike = any;
    type CipherKey = any;
    type KeyLike = any;
    type BinaryToTextEncoding = any;
  }
  export = $;
}
declare module "node:crypto" {
  import $ = require("crypto");
  export = $;
}
declare module "dgram" {
  namespace $ {
    class Socket extends NodeJS.Untyped {}
    const _createSocketHandle: any, createSocket: any;
  }
  export = $;
}
declare module "node:dgram" {
  import $ = require("dgram");
  export = $;
}
declare module "diagnostics_channel" {
  namespace $ {
    class Channel extends NodeJS.Untyped {}
    const channel: any, hasSubscribers: any, subscribe: any, tracingChannel: any, unsubscribe: any;
  }
  export = $;
}
declare module "node:diagnostics_channel" {
  import $ = require("diagnostics_channel");
  export = $;
}
declare module "dns" {
  namespace $ {
    class Resolver extends NodeJS.Untyped {}
    const lookup: any, lookupService: any, getDefaultResultOrder: any, setDefaultResultOrder: any;
    const setServers: any, ADDRCONFIG: any, ALL: any, V4MAPPED: any, NODATA: any, FORMERR: any, SERVFAIL: any;
    const NOTFOUND: any, NOTIMP: any, REFUSED: any, BADQUERY: any, BADNAME: any, BADFAMILY: any, BADRESP: any;
    const CONNREFUSED: any, TIMEOUT: any, EOF: any, FILE: any, NOMEM: any, DESTRUCTION: any, BADSTR: any;
    const BADFLAGS: any, NONAME: any, BADHINTS: any, NOTINITIALIZED: any, LOADIPHLPAPI: any;
    const ADDRGETNETWORKPARAMS: any, CANCELLED: any, getServers: any, resolve: any, resolve4: any;
    const resolve6: any, resolveAny: any, resolveCaa: any, resolveCname: any, resolveMx: any;
    const resolveNaptr: any, resolveNs: any, resolvePtr: any, resolveSoa: any, resolveSrv: any;
    const resolveTxt: any, reverse: any, promises: any;
  }
  export = $;
}
declare module "node:dns" {
  import $ = require("dns");
  export = $;
}
declare module "dns/promises" {
  namespace $ {
    class Resolver extends NodeJS.Untyped {}
    const lookup: any, lookupService: any, getDefaultResultOrder: any, setDefaultResultOrder: any;
    const setServers: any, NODATA: any, FORMERR: any, SERVFAIL: any, NOTFOUND: any, NOTIMP: any, REFUSED: any;
    const BADQUERY: any, BADNAME: any, BADFAMILY: any, BADRESP: any, CONNREFUSED: any, TIMEOUT: any, EOF: any;
    const FILE: any, NOMEM: any, DESTRUCTION: any, BADSTR: any, BADFLAGS: any, NONAME: any, BADHINTS: any;
    const NOTINITIALIZED: any, LOADIPHLPAPI: any, ADDRGETNETWORKPARAMS: any, CANCELLED: any, getServers: any;
    const resolve: any, resolve4: any, resolve6: any, resolveAny: any, resolveCaa: any, resolveCname: any;
    const resolveMx: any, resolveNaptr: any, resolveNs: any, resolvePtr: any, resolveSoa: any, resolveSrv: any;
    const resolveTxt: any, reverse: any;
  }
  export = $;
}
declare module "node:dns/promises" {
  import $ = require("dns/promises");
  export = $;
}
declare module "domain" {
  namespace $ {
    class Domain extends NodeJS.Untyped {}
    const _stack: any, createDomain: any, create: any, active: any;
  }
  export = $;
}
declare module "node:domain" {
  import $ = require("domain");
  export = $;
}
declare module "events" {
  class $ extends NodeJS.Untyped {}
  namespace $ {
    class EventEmitter extends NodeJS.Untyped {}
    class EventEmitterAsyncResource extends NodeJS.Untyped {}
    const addAbortListener: any, once: any, on: any, getEventListeners: any, getMaxListeners: any;
    const usingDomains: any, captureRejectionSymbol: any, captureRejections: any, errorMonitor: any;
    const defaultMaxListeners: any, setMaxListeners: any, init: any, listenerCount: any;
  }
  export = $;
}
declare module "node:events" {
  import $ = require("events");
  export = $;
}
declare module "fs" {
  namespace $ {
    class Dirent extends NodeJS.Untyped {}
    class Stats extends NodeJS.Untyped {}
    class ReadStream extends NodeJS.Untyped {}
    class WriteStream extends NodeJS.Untyped {}
    class FileReadStream extends NodeJS.Untyped {}
    class FileWriteStream extends NodeJS.Untyped {}
    class Dir extends NodeJS.Untyped {}
    const appendFile: any, appendFileSync: any, access: any, accessSync: any, chown: any, chownSync: any;
    const chmod: any, chmodSync: any, close: any, closeSync: any, copyFile: any, copyFileSync: any, cp: any;
    const cpSync: any, createReadStream: any, createWriteStream: any, exists: any, existsSync: any;
    const fchown: any, fchownSync: any, fchmod: any, fchmodSync: any, fdatasync: any, fdatasyncSync: any;
    const fstat: any, fstatSync: any, fsync: any, fsyncSync: any, ftruncate: any, ftruncateSync: any;
    const futimes: any, futimesSync: any, lchown: any, lchownSync: any, lchmod: any, lchmodSync: any;
    const link: any, linkSync: any, lstat: any, lstatSync: any, lutimes: any, lutimesSync: any, mkdir: any;
    const mkdirSync: any, mkdtemp: any, mkdtempSync: any, open: any, openSync: any, openAsBlob: any;
    const readdir: any, readdirSync: any, read: any, readSync: any, readv: any, readvSync: any, readFile: any;
    const readFileSync: any, readlink: any, readlinkSync: any, realpath: any, realpathSync: any, rename: any;
    const renameSync: any, rm: any, rmSync: any, rmdir: any, rmdirSync: any, stat: any, statfs: any;
    const statSync: any, statfsSync: any, symlink: any, symlinkSync: any, truncate: any, truncateSync: any;
    const unwatchFile: any, unlink: any, unlinkSync: any, utimes: any, utimesSync: any, watch: any;
    const watchFile: any, writeFile: any, writeFileSync: any, write: any, writeSync: any, writev: any;
    const writevSync: any, _toUnixTimestamp: any, opendir: any, opendirSync: any, F_OK: any, R_OK: any;
    const W_OK: any, X_OK: any, constants: any, promises: any;
    type PathLike = any;
    type MakeDirectoryOptions = any;
    type RmOptions = any;
    type WriteFileOptions = any;
    type ObjectEncodingOptions = any;
    type BigIntStats = any;
  }
  export = $;
}
declare module "node:fs" {
  import $ = require("fs");
  export = $;
}
declare module "fs/promises" {
  namespace $ {
    const access: any, copyFile: any, cp: any, open: any, opendir: any, rename: any, truncate: any, rm: any;
    const rmdir: any, mkdir: any, readdir: any, readlink: any, symlink: any, lstat: any, stat: any;
    const statfs: any, link: any, unlink: any, chmod: any, lchmod: any, lchown: any, chown: any, utimes: any;
    const lutimes: any, realpath: any, mkdtemp: any, writeFile: any, appendFile: any, readFile: any;
    const watch: any, constants: any;
    type FileHandle = any;
  }
  export = $;
}
declare module "node:fs/promises" {
  import $ = require("fs/promises");
  export = $;
}
declare module "http" {
  namespace $ {
    class Agent extends NodeJS.Untyped {}
    class ClientRequest extends NodeJS.Untyped {}
    class IncomingMessage extends NodeJS.Untyped {}
    class OutgoingMessage extends NodeJS.Untyped {}
    class Server extends NodeJS.Untyped {}
    class ServerResponse extends NodeJS.Untyped {}
    const _connectionListener: any, METHODS: any, STATUS_CODES: any, createServer: any;
    const validateHeaderName: any, validateHeaderValue: any, get: any, request: any;
    const setMaxIdleHTTPParsers: any, maxHeaderSize: any, globalAgent: any;
    type RequestOptions = any;
    type IncomingHttpHeaders = any;
    type OutgoingHttpHeaders = any;
    type RequestListener = any;
    type ServerOptions = any;
  }
  export = $;
}
declare module "node:http" {
  import $ = require("http");
  export = $;
}
declare module "http2" {
  namespace $ {
    class Http2ServerRequest extends NodeJS.Untyped {}
    class Http2ServerResponse extends NodeJS.Untyped {}
    const connect: any, constants: any, createServer: any, createSecureServer: any, getDefaultSettings: any;
    const getPackedSettings: any, getUnpackedSettings: any, performServerHandshake: any, sensitiveHeaders: any;
  }
  export = $;
}
declare module "node:http2" {
  import $ = require("http2");
  export = $;
}
declare module "https" {
  namespace $ {
    class Agent extends NodeJS.Untyped {}
    class Server extends NodeJS.Untyped {}
    const globalAgent: any, createServer: any, get: any, request: any;
    type RequestOptions = any;
    type ServerOptions = any;
  }
  export = $;
}
declare module "node:https" {
  import $ = require("https");
  export = $;
}
declare module "inspector" {
  namespace $ {
    class Session extends NodeJS.Untyped {}
    const open: any, close: any, url: any, waitForDebugger: any, console: any, Network: any;
  }
  export = $;
}
declare module "node:inspector" {
  import $ = require("inspector");
  export = $;
}
declare module "inspector/promises" {
  namespace $ {
    class Session extends NodeJS.Untyped {}
    const open: any, close: any, url: any, waitForDebugger: any, console: any, Network: any;
  }
  export = $;
}
declare module "node:inspector/promises" {
  import $ = require("inspector/promises");
  export = $;
}
declare module "module" {
  class $ extends NodeJS.Untyped {}
  namespace $ {
    class Module extends NodeJS.Untyped {}
    class SourceMap extends NodeJS.Untyped {}
    const _cache: any, _pathCache: any, _extensions: any, globalPaths: any, _debug: any, isBuiltin: any;
    const _findPath: any, _nodeModulePaths: any, _resolveLookupPaths: any, _load: any, _resolveFilename: any;
    const createRequire: any, _initPaths: any, _preloadModules: any, syncBuiltinESMExports: any;
    const builtinModules: any, runMain: any, findSourceMap: any, register: any;
  }
  export = $;
}
declare module "node:module" {
  import $ = require("module");
  export = $;
}
declare module "net" {
  namespace $ {
    class BlockList extends NodeJS.Untyped {}
    class SocketAddress extends NodeJS.Untyped {}
    class Server extends NodeJS.Untyped {}
    class Socket extends NodeJS.Untyped {}
    class Stream extends NodeJS.Untyped {}
    const _createServerHandle: any, _normalizeArgs: any, _setSimultaneousAccepts: any, connect: any;
    const createConnection: any, createServer: any, isIP: any, isIPv4: any, isIPv6: any;
    const getDefaultAutoSelectFamily: any, setDefaultAutoSelectFamily: any;
    const getDefaultAutoSelectFamilyAttemptTimeout: any, setDefaultAutoSelectFamilyAttemptTimeout: any;
    type AddressInfo = any;
    type NetConnectOpts = any;
    type SocketConnectOpts = any;
  }
  export = $;
}
declare module "node:net" {
  import $ = require("net");
  export = $;
}
declare module "os" {
  namespace $ {
    const arch: any, availableParallelism: any, cpus: any, endianness: any, freemem: any, getPriority: any;
    const homedir: any, hostname: any, loadavg: any, networkInterfaces: any, platform: any, release: any;
    const setPriority: any, tmpdir: any, totalmem: any, type: any, userInfo: any, uptime: any, version: any;
    const machine: any, constants: any, EOL: any, devNull: any;
    type CpuInfo = any;
    type NetworkInterfaceInfo = any;
  }
  export = $;
}
declare module "node:os" {
  import $ = require("os");
  export = $;
}
declare module "path" {
  namespace $ {
    const resolve: any, normalize: any, isAbsolute: any, join: any, relative: any, toNamespacedPath: any;
    const dirname: any, basename: any, extname: any, format: any, parse: any, matchesGlob: any, sep: any;
    const delimiter: any, win32: any, posix: any, _makeLong: any;
    type ParsedPath = any;
    type PlatformPath = any;
  }
  export = $;
}
declare module "node:path" {
  import $ = require("path");
  export = $;
}
declare module "path/posix" {
  namespace $ {
    const resolve: any, normalize: any, isAbsolute: any, join: any, relative: any, toNamespacedPath: any;
    const dirname: any, basename: any, extname: any, format: any, parse: any, matchesGlob: any, sep: any;
    const delimiter: any, win32: any, posix: any, _makeLong: any;
  }
  export = $;
}
declare module "node:path/posix" {
  import $ = require("path/posix");
  export = $;
}
declare module "path/win32" {
  namespace $ {
    const resolve: any, normalize: any, isAbsolute: any, join: any, relative: any, toNamespacedPath: any;
    const dirname: any, basename: any, extname: any, format: any, parse: any, matchesGlob: any, sep: any;
    const delimiter: any, win32: any, posix: any, _makeLong: any;
  }
  export = $;
}
declare module "node:path/win32" {
  import $ = require("path/win32");
  export = $;
}
declare module "perf_hooks" {
  namespace $ {
    class Performance extends NodeJS.Untyped {}
    class PerformanceEntry extends NodeJS.Untyped {}
    class PerformanceMark extends NodeJS.Untyped {}
    class PerformanceMeasure extends NodeJS.Untyped {}
    class PerformanceObserver extends NodeJS.Untyped {}
    class PerformanceObserverEntryList extends NodeJS.Untyped {}
    class PerformanceResourceTiming extends NodeJS.Untyped {}
    const monitorEventLoopDelay: any, createHistogram: any, performance: any, constants: any;
  }
  export = $;
}
declare module "node:perf_hooks" {
  import $ = require("perf_hooks");
  export = $;
}
declare module "process" {
  namespace $ {
    const version: any, versions: any, arch: any, platform: any, release: any, _rawDebug: any;
    const moduleLoadList: any, binding: any, _linkedBinding: any, _events: any, _eventsCount: any;
    const _maxListeners: any, domain: any, _exiting: any, exitCode: any, config: any, dlopen: any, uptime: any;
    const _getActiveRequests: any, _getActiveHandles: any, getActiveResourcesInfo: any, reallyExit: any;
    const _kill: any, loadEnvFile: any, cpuUsage: any, resourceUsage: any, memoryUsage: any;
    const constrainedMemory: any, availableMemory: any, kill: any, exit: any, hrtime: any, openStdin: any;
    const getuid: any, geteuid: any, getgid: any, getegid: any, getgroups: any;
    const allowedNodeEnvironmentFlags: any, assert: any, features: any, _fatalException: any;
    const setUncaughtExceptionCaptureCallback: any, hasUncaughtExceptionCaptureCallback: any, emitWarning: any;
    const nextTick: any, _tickCallback: any, sourceMapsEnabled: any, setSourceMapsEnabled: any;
    const getBuiltinModule: any, _debugProcess: any, _debugEnd: any, _startProfilerIdleNotifier: any;
    const _stopProfilerIdleNotifier: any, stdout: any, stdin: any, stderr: any, abort: any, umask: any;
    const chdir: any, cwd: any, initgroups: any, setgroups: any, setegid: any, seteuid: any, setgid: any;
    const setuid: any, env: any, title: any, argv: any, execArgv: any, pid: any, ppid: any, execPath: any;
    const debugPort: any, argv0: any, _preload_modules: any, report: any;
  }
  export = $;
}
declare module "node:process" {
  import $ = require("process");
  export = $;
}
declare module "querystring" {
  namespace $ {
    const unescapeBuffer: any, unescape: any, escape: any, stringify: any, encode: any, parse: any;
    const decode: any;
  }
  export = $;
}
declare module "node:querystring" {
  import $ = require("querystring");
  export = $;
}
declare module "readline" {
  namespace $ {
    class Interface extends NodeJS.Untyped {}
    const clearLine: any, clearScreenDown: any, createInterface: any, cursorTo: any, emitKeypressEvents: any;
    const moveCursor: any, promises: any;
    type ReadLine = any;
    type Key = any;
    type CompleterResult = any;
  }
  export = $;
}
declare module "node:readline" {
  import $ = require("readline");
  export = $;
}
declare module "readline/promises" {
  namespace $ {
    class Interface extends NodeJS.Untyped {}
    class Readline extends NodeJS.Untyped {}
    const createInterface: any;
  }
  export = $;
}
declare module "node:readline/promises" {
  import $ = require("readline/promises");
  export = $;
}
declare module "repl" {
  namespace $ {
    class REPLServer extends NodeJS.Untyped {}
    class Recoverable extends NodeJS.Untyped {}
    const start: any, writer: any, REPL_MODE_SLOPPY: any, REPL_MODE_STRICT: any, isValidSyntax: any;
    const builtinModules: any;
  }
  export = $;
}
declare module "node:repl" {
  import $ = require("repl");
  export = $;
}
declare module "stream" {
  class $ extends NodeJS.Untyped {}
  namespace $ {
    class Readable extends NodeJS.Untyped {}
    class Writable extends NodeJS.Untyped {}
    class Duplex extends NodeJS.Untyped {}
    class Transform extends NodeJS.Untyped {}
    class PassThrough extends NodeJS.Untyped {}
    class Stream extends NodeJS.Untyped {}
    const isDestroyed: any, isDisturbed: any, isErrored: any, isReadable: any, isWritable: any;
    const duplexPair: any, pipeline: any, addAbortSignal: any, finished: any, destroy: any, compose: any;
    const setDefaultHighWaterMark: any, getDefaultHighWaterMark: any, promises: any, _isArrayBufferView: any;
    const _isUint8Array: any, _uint8ArrayToBuffer: any;
    type ReadableOptions = any;
    type WritableOptions = any;
    type TransformOptions = any;
    type DuplexOptions = any;
    type TransformCallback = any;
  }
  export = $;
}
declare module "node:stream" {
  import $ = require("stream");
  export = $;
}
declare module "stream/consumers" {
  namespace $ {
    const arrayBuffer: any, blob: any, buffer: any, text: any, json: any;
  }
  export = $;
}
declare module "node:stream/consumers" {
  import $ = require("stream/consumers");
  export = $;
}
declare module "stream/promises" {
  namespace $ {
    const finished: any, pipeline: any;
  }
  export = $;
}
declare module "node:stream/promises" {
  import $ = require("stream/promises");
  export = $;
}
declare module "stream/web" {
  namespace $ {
    class ReadableStream extends NodeJS.Untyped {}
    class ReadableStreamDefaultReader extends NodeJS.Untyped {}
    class ReadableStreamBYOBReader extends NodeJS.Untyped {}
    class ReadableStreamBYOBRequest extends NodeJS.Untyped {}
    class ReadableByteStreamController extends NodeJS.Untyped {}
    class ReadableStreamDefaultController extends NodeJS.Untyped {}
    class TransformStream extends NodeJS.Untyped {}
    class TransformStreamDefaultController extends NodeJS.Untyped {}
    class WritableStream extends NodeJS.Untyped {}
    class WritableStreamDefaultWriter extends NodeJS.Untyped {}
    class WritableStreamDefaultController extends NodeJS.Untyped {}
    class ByteLengthQueuingStrategy extends NodeJS.Untyped {}
    class CountQueuingStrategy extends NodeJS.Untyped {}
    class TextEncoderStream extends NodeJS.Untyped {}
    class TextDecoderStream extends NodeJS.Untyped {}
    class CompressionStream extends NodeJS.Untyped {}
    class DecompressionStream extends NodeJS.Untyped {}
  }
  export = $;
}
declare module "node:stream/web" {
  import $ = require("stream/web");
  export = $;
}
declare module "string_decoder" {
  namespace $ {
    class StringDecoder extends NodeJS.Untyped {}
  }
  export = $;
}
declare module "node:string_decoder" {
  import $ = require("string_decoder");
  export = $;
}
declare module "timers" {
  namespace $ {
    const setTimeout: any, clearTimeout: any, setImmediate: any, clearImmediate: any, setInterval: any;
    const clearInterval: any, _unrefActive: any, active: any, unenroll: any, enroll: any, promises: any;
  }
  export = $;
}
declare module "node:timers" {
  import $ = require("timers");
  export = $;
}
declare module "timers/promises" {
  namespace $ {
    const setTimeout: any, setImmediate: any, setInterval: any, scheduler: any;
  }
  export = $;
}
declare module "node:timers/promises" {
  import $ = require("timers/promises");
  export = $;
}
declare module "tls" {
  namespace $ {
    class SecureContext extends NodeJS.Untyped {}
    class TLSSocket extends NodeJS.Untyped {}
    class Server extends NodeJS.Untyped {}
    const CLIENT_RENEG_LIMIT: any, CLIENT_RENEG_WINDOW: any, DEFAULT_CIPHERS: any, DEFAULT_ECDH_CURVE: any;
    const DEFAULT_MIN_VERSION: any, DEFAULT_MAX_VERSION: any, getCiphers: any, rootCertificates: any;
    const convertALPNProtocols: any, checkServerIdentity: any, createSecureContext: any, createServer: any;
    const connect: any, createSecurePair: any;
  }
  export = $;
}
declare module "node:tls" {
  import $ = require("tls");
  export = $;
}
declare module "tty" {
  namespace $ {
    class ReadStream extends NodeJS.Untyped {}
    class WriteStream extends NodeJS.Untyped {}
    const isatty: any;
  }
  export = $;
}
declare module "node:tty" {
  import $ = require("tty");
  export = $;
}
declare module "url" {
  namespace $ {
    class Url extends NodeJS.Untyped {}
    class URL extends NodeJS.Untyped {}
    class URLSearchParams extends NodeJS.Untyped {}
    const parse: any, resolve: any, resolveObject: any, format: any, domainToASCII: any, domainToUnicode: any;
    const pathToFileURL: any, fileURLToPath: any, urlToHttpOptions: any;
  }
  export = $;
}
declare module "node:url" {
  import $ = require("url");
  export = $;
}
declare module "util" {
  namespace $ {
    class TextDecoder extends NodeJS.Untyped {}
    class TextEncoder extends NodeJS.Untyped {}
    class MIMEType extends NodeJS.Untyped {}
    class MIMEParams extends NodeJS.Untyped {}
    const _errnoException: any, _exceptionWithHostPort: any, _extend: any, callbackify: any, debug: any;
    const debuglog: any, deprecate: any, format: any, styleText: any, formatWithOptions: any;
    const getSystemErrorMap: any, getSystemErrorName: any, inherits: any, inspect: any, isArray: any;
    const isBoolean: any, isBuffer: any, isDeepStrictEqual: any, isNull: any, isNullOrUndefined: any;
    const isNumber: any, isString: any, isSymbol: any, isUndefined: any, isRegExp: any, isObject: any;
    const isDate: any, isError: any, isFunction: any, isPrimitive: any, log: any, promisify: any;
    const stripVTControlCharacters: any, toUSVString: any, transferableAbortSignal: any;
    const transferableAbortController: any, aborted: any, types: any, parseEnv: any, parseArgs: any;
    type InspectOptions = any;
    type ParseArgsConfig = any;
  }
  export = $;
}
declare module "node:util" {
  import $ = require("util");
  export = $;
}
declare module "util/types" {
  namespace $ {
    const isExternal: any, isDate: any, isArgumentsObject: any, isBigIntObject: any, isBooleanObject: any;
    const isNumberObject: any, isStringObject: any, isSymbolObject: any, isNativeError: any, isRegExp: any;
    const isAsyncFunction: any, isGeneratorFunction: any, isGeneratorObject: any, isPromise: any, isMap: any;
    const isSet: any, isMapIterator: any, isSetIterator: any, isWeakMap: any, isWeakSet: any;
    const isArrayBuffer: any, isDataView: any, isSharedArrayBuffer: any, isProxy: any;
    const isModuleNamespaceObject: any, isAnyArrayBuffer: any, isBoxedPrimitive: any, isArrayBufferView: any;
    const isTypedArray: any, isUint8Array: any, isUint8ClampedArray: any, isUint16Array: any;
    const isUint32Array: any, isInt8Array: any, isInt16Array: any, isInt32Array: any, isFloat32Array: any;
    const isFloat64Array: any, isBigInt64Array: any, isBigUint64Array: any, isKeyObject: any, isCryptoKey: any;
  }
  export = $;
}
declare module "node:util/types" {
  import $ = require("util/types");
  export = $;
}
declare module "v8" {
  namespace $ {
    class Serializer extends NodeJS.Untyped {}
    class Deserializer extends NodeJS.Untyped {}
    class DefaultSerializer extends NodeJS.Untyped {}
    class DefaultDeserializer extends NodeJS.Untyped {}
    class GCProfiler extends NodeJS.Untyped {}
    const cachedDataVersionTag: any, getHeapSnapshot: any, getHeapStatistics: any, getHeapSpaceStatistics: any;
    const getHeapCodeStatistics: any, setFlagsFromString: any, deserialize: any, takeCoverage: any;
    const stopCoverage: any, serialize: any, writeHeapSnapshot: any, promiseHooks: any, queryObjects: any;
    const startupSnapshot: any, setHeapSnapshotNearHeapLimit: any;
  }
  export = $;
}
declare module "node:v8" {
  import $ = require("v8");
  export = $;
}
declare module "vm" {
  namespace $ {
    class Script extends NodeJS.Untyped {}
    const createContext: any, createScript: any, runInContext: any, runInNewContext: any;
    const runInThisContext: any, isContext: any, compileFunction: any, measureMemory: any, constants: any;
  }
  export = $;
}
declare module "node:vm" {
  import $ = require("vm");
  export = $;
}
declare module "worker_threads" {
  namespace $ {
    class MessagePort extends NodeJS.Untyped {}
    class MessageChannel extends NodeJS.Untyped {}
    class Worker extends NodeJS.Untyped {}
    class BroadcastChannel extends NodeJS.Untyped {}
    const isMainThread: any, markAsUntransferable: any, moveMessagePortToContext: any;
    const receiveMessageOnPort: any, resourceLimits: any, postMessageToThread: any, threadId: any;
    const SHARE_ENV: any, parentPort: any, workerData: any, setEnvironmentData: any, getEnvironmentData: any;
    type WorkerOptions = any;
    type TransferListItem = any;
  }
  export = $;
}
declare module "node:worker_threads" {
  import $ = require("worker_threads");
  export = $;
}
declare module "zlib" {
  namespace $ {
    class Deflate extends NodeJS.Untyped {}
    class Inflate extends NodeJS.Untyped {}
    class Gzip extends NodeJS.Untyped {}
    class Gunzip extends NodeJS.Untyped {}
    class DeflateRaw extends NodeJS.Untyped {}
    class InflateRaw extends NodeJS.Untyped {}
    class Unzip extends NodeJS.Untyped {}
    class BrotliCompress extends NodeJS.Untyped {}
    class BrotliDecompress extends NodeJS.Untyped {}
    const crc32: any, deflate: any, deflateSync: any, gzip: any, gzipSync: any, deflateRaw: any;
    const deflateRawSync: any, unzip: any, unzipSync: any, inflate: any, inflateSync: any, gunzip: any;
    const gunzipSync: any, inflateRaw: any, inflateRawSync: any, brotliCompress: any, brotliCompressSync: any;
    const brotliDecompress: any, brotliDecompressSync: any, createDeflate: any, createInflate: any;
    const createDeflateRaw: any, createInflateRaw: any, createGzip: any, createGunzip: any, createUnzip: any;
    const createBrotliCompress: any, createBrotliDecompress: any, constants: any, codes: any;
  }
  export = $;
}
declare module "node:zlib" {
  import $ = require("zlib");
  export = $;
}
declare module "node:*";
