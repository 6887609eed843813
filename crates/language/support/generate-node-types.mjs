// Writes node.d.ts: what tsc needs to know about Node when @types/node is not installed. Every module and global of
// the running Node is listed by name and left untyped, except for those in node-globals.d.ts.
//
//   node crates/language/support/generate-node-types.mjs > crates/language/support/node.d.ts

import { readFileSync } from 'node:fs';
import { builtinModules, createRequire } from 'node:module';

const require = createRequire(import.meta.url);
const word = /^[A-Za-z_$][\w$]*$/;
const reserved = new Set(['default', 'delete', 'arguments', 'eval', 'import', 'export', 'enum', 'await', 'function']);

// Names that exist as types only, so that Node itself cannot be asked for them.
const types = {
  fs: ['PathLike', 'MakeDirectoryOptions', 'RmOptions', 'WriteFileOptions', 'ObjectEncodingOptions', 'BigIntStats'],
  'fs/promises': ['FileHandle'],
  path: ['ParsedPath', 'PlatformPath'],
  child_process: ['ExecOptions', 'SpawnOptions', 'SpawnSyncReturns', 'ExecException', 'ChildProcessWithoutNullStreams'],
  http: ['RequestOptions', 'IncomingHttpHeaders', 'OutgoingHttpHeaders', 'RequestListener', 'ServerOptions'],
  https: ['RequestOptions', 'ServerOptions'],
  net: ['AddressInfo', 'NetConnectOpts', 'SocketConnectOpts'],
  crypto: ['BinaryLike', 'CipherKey', 'KeyLike', 'BinaryToTextEncoding'],
  readline: ['ReadLine', 'Key', 'CompleterResult'],
  stream: ['ReadableOptions', 'WritableOptions', 'TransformOptions', 'DuplexOptions', 'TransformCallback'],
  util: ['InspectOptions', 'ParseArgsConfig'],
  worker_threads: ['WorkerOptions', 'TransferListItem'],
  os: ['CpuInfo', 'NetworkInterfaceInfo'],
};

// Globals that node-globals.d.ts or the ECMAScript library declares.
const declared = new Set(
  (readFileSync(new URL('./node-globals.d.ts', import.meta.url), 'utf8').match(/^declare (?:var|function) \w+/gm) ?? [])
    .map((line) => line.split(' ')[2]),
);
const standard = new Set([
  'Object', 'Function', 'Array', 'Number', 'parseFloat', 'parseInt', 'Infinity', 'NaN', 'undefined', 'Boolean', 'String',
  'Symbol', 'Date', 'Promise', 'RegExp', 'Error', 'AggregateError', 'EvalError', 'RangeError', 'ReferenceError',
  'SyntaxError', 'TypeError', 'URIError', 'globalThis', 'JSON', 'Math', 'Intl', 'ArrayBuffer', 'Atomics', 'Uint8Array',
  'Int8Array', 'Uint16Array', 'Int16Array', 'Uint32Array', 'Int32Array', 'Float32Array', 'Float64Array',
  'Uint8ClampedArray', 'BigUint64Array', 'BigInt64Array', 'DataView', 'Map', 'BigInt', 'Set', 'WeakMap', 'WeakSet',
  'WeakRef', 'Proxy', 'Reflect', 'FinalizationRegistry', 'SharedArrayBuffer', 'decodeURI', 'decodeURIComponent',
  'encodeURI', 'encodeURIComponent', 'escape', 'unescape', 'eval', 'isFinite', 'isNaN', 'WebAssembly',
]);

const isClass = (name, value) => typeof value === 'function' && /^[A-Z]/.test(name) && value.prototype !== undefined;

// `const a: any, b: any;` in lines of readable length.
function constants(keyword, names, indent) {
  const lines = [];
  let line = '';
  for (const name of names) {
    const next = line === '' ? `${indent}${keyword} ${name}: any` : `${line}, ${name}: any`;
    if (next.length > 110 && line !== '') {
      lines.push(`${line};`);
      line = `${indent}${keyword} ${name}: any`;
    } else {
      line = next;
    }
  }
  if (line !== '') lines.push(`${line};`);
  return lines;
}

function moduleLines(id) {
  const value = require(id);
  const names = Object.keys(value).filter((name) => word.test(name) && !reserved.has(name));
  const classes = names.filter((name) => isClass(name, value[name]));
  const lines = [`declare module "${id}" {`];
  if (typeof value === 'function') {
    lines.push(isClass(value.name, value) ? '  class $ extends NodeJS.Untyped {}' : '  function $(...args: any[]): any;');
  }
  lines.push('  namespace $ {');
  for (const name of classes) lines.push(`    class ${name} extends NodeJS.Untyped {}`);
  lines.push(...constants('const', names.filter((name) => !classes.includes(name)), '    '));
  for (const name of types[id] ?? []) if (!names.includes(name)) lines.push(`    type ${name} = any;`);
  lines.push('  }', '  export = $;', '}');
  lines.push(`declare module "node:${id}" {`, `  import $ = require("${id}");`, '  export = $;', '}');
  return lines;
}

const globals = Object.getOwnPropertyNames(globalThis)
  .filter((name) => word.test(name) && !standard.has(name) && !declared.has(name))
  .sort();
const modules = builtinModules.filter((id) => !/^(_|internal|v8\/)|^(sys|wasi|punycode|trace_events)$/.test(id)).sort();

const out = ['// Made by generate-node-types.mjs from the names that Node exports. Do not edit.', ''];
out.push(readFileSync(new URL('./node-globals.d.ts', import.meta.url), 'utf8').trimEnd(), '');
const classes = globals.filter((name) => isClass(name, globalThis[name]));
for (const name of classes) out.push(`declare class ${name} extends NodeJS.Untyped {}`);
out.push(...constants('declare var', globals.filter((name) => !classes.includes(name)), ''));
out.push('');
for (const id of modules) out.push(...moduleLines(id));
out.push('declare module "node:*";', '');
process.stdout.write(out.join('\n'));
