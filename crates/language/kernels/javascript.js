'use strict';
// The JavaScript context kernel (Node 18 or later): runs cells, keeps their state, reports what they produced.
// README.md beside this file is the protocol. One process is one context, in three threads:
//
// - the runtime, on the main thread, where user code runs as in an ordinary program;
// - the controller, which owns the control descriptor, so that a loop in user code cannot stop or damage a frame;
// - the sentinel, parked where SIGINT wakes it, because Node delivers signals through an event loop that may be stuck.
//
// Cells are evaluated by V8's own REPL mode, through the inspector: it parses top-level `await` and gives the completion
// value. What it lacks is done by a token-level rewrite first: see `rewrite`.
//
// User code shares this process and can do anything to it. The only promise is that nothing it prints is taken for a frame.

const { Worker, MessageChannel, isMainThread, workerData } = require('node:worker_threads');
const fs = require('node:fs');
const inspector = require('node:inspector');
const path = require('node:path');
const { Writable } = require('node:stream');
const util = require('node:util');
const vm = require('node:vm');

const PROTOCOL = 1;
const MAX_FRAME = 1 << 20;
const MAX_MESSAGE = 128 << 20;
const MAX_JSON_VALUE = 1 << 20;
const INTERRUPT_GRACE_MS = 25;
const MAX_UNSENT = 64 << 20;
const MAX_LINE = 24 << 10;
const MORE = 0x80000000;
// What `typescript.js` before this text defines, where the cells are TypeScript.
const LANGUAGE = typeof typescript === 'object' ? typescript.name : 'javascript';
const translate = typeof typescript === 'object' ? typescript.translate : (code) => code;
const NO_ID_CHECKS = '--no-force-async-hooks-checks';

// Indices of the memory that the threads share: bytes that the controller has not written yet, a number that the sentinel
// sleeps on, and how often it has begun to watch.
const [UNSENT, WAKE_SENTINEL, ARMED] = [0, 1, 2];

// Frames

function encode(message) {
  // JSON.stringify writes a lone surrogate as an escape that strict parsers refuse.
  const wellFormed = (_key, value) =>
    typeof value === 'string' && /[\ud800-\udfff]/.test(value) ? Buffer.from(value).toString() : value;
  const body = Buffer.from(JSON.stringify(message, wellFormed));
  return body.length > MAX_MESSAGE ? encode(withoutPayload(message, body.length)) : body;
}

function withoutPayload({ type, id, name }, size) {
  const note = `<${size} bytes: over the maximum of ${MAX_MESSAGE}>`;
  if (type === 'error') return { type, id, name, value: note, traceback: [note] };
  return { type, id, data: { 'text/plain': note }, metadata: { truncated: true } };
}

function frames(body) {
  const pieces = [];
  for (let start = 0; start < body.length; start += MAX_FRAME) {
    const piece = body.subarray(start, start + MAX_FRAME);
    const header = Buffer.alloc(4);
    header.writeUInt32LE((piece.length | (start + MAX_FRAME < body.length ? MORE : 0)) >>> 0);
    pieces.push(header, piece);
  }
  return pieces;
}

// Cuts a byte stream into frames and calls `onFrame(payload, more)` for each.
class FrameReader {
  constructor(onFrame) {
    this.onFrame = onFrame;
    this.chunks = [];
    this.length = 0;
  }

  push(chunk) {
    this.chunks.push(chunk);
    this.length += chunk.length;
    for (;;) {
      const header = this.peek(4);
      if (!header) return;
      const word = header.readUInt32LE();
      const size = word & ~MORE;
      if (size > MAX_FRAME) throw new Error('frame over its maximum');
      const whole = this.peek(4 + size);
      if (!whole) return;
      this.chunks = [whole.subarray(4 + size)];
      this.length -= 4 + size;
      this.onFrame(whole.subarray(4, 4 + size), word >= MORE);
    }
  }

  // At least `size` bytes in one buffer, without joining more often than needed.
  peek(size) {
    if (this.length < size) return null;
    if (this.chunks[0].length < size) this.chunks = [Buffer.concat(this.chunks)];
    if (this.chunks.length > 1 && this.chunks[0].length >= size) {
      const rest = this.chunks.splice(1);
      this.chunks = [Buffer.concat([this.chunks[0], ...rest])];
    }
    return this.chunks[0];
  }
}

// Tokens

const KEYWORDS_BEFORE_OPERAND = new Set(
  'return typeof instanceof in of new delete void throw case do else await yield extends default'.split(' '),
);
const PUNCTUATION = /=>|\?\.(?!\d)|\+\+|--|&&|\|\||\?\?|\.\.\.|[^\s\w]/y;
const WORD = /[\p{ID_Continue}$\u200c\u200d\\#@]+/uy;
const NUMBER = /\.?\d[\w.]*/y;
const BLANK = /(?:[^\S\n\r\u2028\u2029]|\/\/[^\n\r\u2028\u2029]*)+/y;
const STRING = /'[^'\\\n]*(?:\\[^][^'\\\n]*)*'|"[^"\\\n]*(?:\\[^][^"\\\n]*)*"/y;
const REGEX = /\/(?:[^/\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+\/\w*/y;
const TEMPLATE_PART = /[^`\\$]*(?:(?:\\[^]|\$(?!\{))[^`\\$]*)*(?:`|\$\{)/y;

// The tokens of a program, each with its depth of brackets and whether a line ended before it. Null when the text is not
// well formed: V8 then says what is wrong with it.
function tokenize(source) {
  const tokens = [];
  const open = [];
  let at = source.startsWith('#!') ? source.search(/[\n\r]|$/) : 0;
  let newline = false;
  const match = (pattern) => {
    pattern.lastIndex = at;
    const found = pattern.exec(source);
    return found && found[0];
  };
  const push = (kind, text, extra) => {
    tokens.push({ kind, text, start: at, end: at + text.length, depth: open.length, newline, ...extra });
    at += text.length;
    newline = false;
  };
  const template = () => {
    const part = match(TEMPLATE_PART);
    if (part === null) return false;
    push('template', part);
    if (part.endsWith('${')) open.push({ text: '${' });
    return true;
  };
  while (at < source.length) {
    const character = source[at];
    const blank = match(BLANK);
    let text;
    if (blank) {
      at += blank.length;
    } else if (/\s/.test(character)) {
      at += 1;
      newline = true;
    } else if (source.startsWith('/*', at)) {
      const end = source.indexOf('*/', at + 2);
      if (end < 0) return null;
      newline = newline || /[\n\r]/.test(source.slice(at, end));
      at = end + 2;
    } else if (character === '`') {
      at += 1;
      if (!template()) return null;
    } else if (character === '"' || character === "'") {
      if (!(text = match(STRING))) return null;
      push('string', text);
    } else if ((text = match(NUMBER))) {
      push('number', text);
    } else if ((text = match(WORD))) {
      push('word', text);
    } else if (character === '/' && operandExpected(tokens)) {
      if (!(text = match(REGEX))) return null;
      push('regex', text);
    } else if ('([{'.includes(character)) {
      const opener = { text: character, ...openerMeaning(character, tokens) };
      push('punctuation', character);
      open.push(opener);
    } else if (')]}'.includes(character)) {
      const opener = open.pop();
      if (!opener) return null;
      if (opener.text === '${' && character === '}') {
        at += 1;
        if (!template()) return null;
      } else if ('([{'.indexOf(opener.text) === ')]}'.indexOf(character)) {
        push('punctuation', character, { endsStatement: opener.statement });
      } else {
        return null;
      }
    } else if ((text = match(PUNCTUATION))) {
      push('punctuation', text);
    } else {
      return null;
    }
  }
  return open.length ? null : tokens;
}

// After this bracket closes, does a statement or operand begin (`if (x) /re/`), or does an expression go on (`(x) / 2`)?
function openerMeaning(character, tokens) {
  const previous = tokens[tokens.length - 1];
  const isProperty = tokens[tokens.length - 2]?.text === '.';
  if (character === '(') return { statement: !isProperty && ['if', 'while', 'for', 'with'].includes(previous?.text) };
  if (character === '[') return { statement: false };
  if (!previous || [';', '{', '}', ')', '=>'].includes(previous.text)) return { statement: true };
  return { statement: previous.kind === 'word' && (isProperty || !KEYWORDS_BEFORE_OPERAND.has(previous.text)) };
}

// Would a `/` at this place begin a regular expression?
function operandExpected(tokens, index = tokens.length) {
  const previous = tokens[index - 1];
  if (!previous) return true;
  if (previous.kind === 'word') {
    return KEYWORDS_BEFORE_OPERAND.has(previous.text) && tokens[index - 2]?.text !== '.';
  }
  if (previous.kind === 'template') return previous.text.endsWith('${');
  if (previous.kind !== 'punctuation') return false;
  if (previous.text === ')' || previous.text === '}') return previous.endsStatement;
  return ![']', '++', '--'].includes(previous.text);
}

// Is the token the first of a top-level statement? Newlines count where a semicolon would be inserted.
function startsStatement(tokens, index) {
  const token = tokens[index];
  const previous = tokens[index - 1];
  if (token.depth > 0) return false;
  if (!previous || previous.text === ';') return true;
  if (previous.text === '}' && previous.endsStatement) return true;
  const continues = token.kind === 'punctuation' || token.kind === 'template' || /^(in|of|instanceof)$/.test(token.text);
  return token.newline && !continues && !operandExpected(tokens, index);
}

// Rewriting

const IMPORT_FUNCTION = '__import';
const NOT_EXPRESSIONS = new Set(
  'var let const class function if else for while do switch try catch finally import export throw break continue'.split(' '),
);

// Makes a cell what REPL mode can run again and again:
// - top-level `let`, `const` and `class` become `var`, so that a later cell may declare a name anew in any form;
// - `import(…)` calls our function, since scripts of the inspector have no module loader before Node 22;
// - `import … from` becomes an awaited `import(…)`;
// - `export` is left out: what a cell declares, every later cell has.
// Gives the text and whether its completion value is that of an expression.
function rewrite(source) {
  const tokens = tokenize(source);
  if (!tokens || !tokens.length) return { text: source, isExpression: true };
  if (tokens[0].text === '{' && tokens.findIndex((token) => token.depth === 0 && token.text === '}') === tokens.length - 1) {
    // As in Node's own REPL, `{a: 1}` is an object when it can be one.
    const object = `(${source}\n)`;
    if (compiles(object)) return { text: object, isExpression: true };
  }
  const edits = leaveOutExports(tokens);
  let lastStatement = '';
  tokens.forEach((token, index) => {
    const next = tokens[index + 1];
    if (startsStatement(tokens, index)) {
      const isCall = token.text === 'import' && (next?.text === '(' || next?.text === '.');
      lastStatement = isCall || (token.text === 'async' && next?.text === 'function') ? next.text : token.text;
    }
    if (token.kind !== 'word' || ['.', '?.'].includes(tokens[index - 1]?.text) || !next) return;
    if (token.text === 'import' && next.text === '(') {
      if (!isMethod(tokens, index + 1)) edits.push([token.start, token.end, IMPORT_FUNCTION]);
    } else if (token.depth > 0) {
      return;
    } else if (token.text === 'import' && next.text !== '.') {
      const statement = importStatement(tokens, index);
      if (statement) edits.push(statement);
    } else if (token.text === 'const') {
      edits.push([token.start, token.end, 'var  ']);
    } else if (token.text === 'let' && (next.kind === 'word' || next.text === '[' || next.text === '{')) {
      edits.push([token.start, token.end, 'var'], ...emptyDeclarations(tokens, index + 1));
    } else if (token.text === 'class' && startsStatement(tokens, index)) {
      const end = tokens.find((other) => other.start > token.start && other.depth === 0 && other.text === '}' && other.endsStatement);
      if (end) edits.push([token.start, token.start, `var ${next.text} = `], [end.end, end.end, ';']);
    }
  });
  const text = [];
  let at = 0;
  for (const [start, end, replacement] of edits.sort((a, b) => a[0] - b[0])) {
    text.push(source.slice(at, start), replacement);
    at = end;
  }
  return { text: text.join('') + source.slice(at), isExpression: !NOT_EXPRESSIONS.has(lastStatement) };
}

// Takes `export` and `export default` out of the tokens of declarations, and `export { … }` as a whole. Gives the edits
// that take them out of the text; other forms are V8's to refuse.
function leaveOutExports(tokens) {
  const edits = [];
  for (let index = 0; index < tokens.length; index++) {
    if (tokens[index].text !== 'export' || !startsStatement(tokens, index)) continue;
    const [token, next, after] = tokens.slice(index);
    let end = index;
    if (next?.text === '{') {
      end = tokens.findIndex((other, at) => at > index && other.depth === 0 && other.text === '}');
      if (tokens[end + 1]?.text === 'from') continue;
    } else if (next?.text === 'default') {
      if (['function', 'class', 'async'].includes(after?.text) && tokens[index + 3]?.kind !== 'word') continue;
      end = index + 1;
    } else if (!/^(const|let|var|function|async|class)$/.test(next?.text)) {
      continue;
    }
    edits.push([token.start, tokens[end].end, '']);
    if (tokens[end + 1]) tokens[end + 1].newline ||= token.newline;
    tokens.splice(index, end + 1 - index);
  }
  return edits;
}

// A text that the tokenizer chokes on is V8's to judge.
function rewriteOrLeave(source) {
  try {
    return rewrite(source);
  } catch {
    return { text: source, isExpression: true };
  }
}

function compiles(text) {
  try {
    new vm.Script(text);
    return true;
  } catch {
    return false;
  }
}

// `import(` that opens the parameters of a method of that name.
function isMethod(tokens, opening) {
  const closing = tokens.findIndex((token, at) => at > opening && token.depth === tokens[opening].depth && token.text === ')');
  const after = tokens[closing + 1];
  return after?.text === '{' && !after.newline;
}

// `let x;` run again means undefined again; `var x;` would keep the old value.
function emptyDeclarations(tokens, index) {
  const edits = [];
  let expectsName = true;
  for (; index < tokens.length; index++) {
    const token = tokens[index];
    const next = tokens[index + 1];
    if (token.depth > 0) continue;
    if (expectsName && token.kind === 'word') {
      const isEmpty = !next || next.text === ',' || next.text === ';' || startsStatement(tokens, index + 1);
      if (isEmpty) edits.push([token.end, token.end, ' = undefined']);
      expectsName = false;
    } else if (token.text === ';' || (!expectsName && startsStatement(tokens, index))) {
      break;
    } else {
      expectsName = token.text === ',';
    }
  }
  return edits;
}

function importStatement(tokens, index) {
  const end = tokens.findIndex((token, at) => at > index && token.kind === 'string' && token.depth === 0);
  if (end < 0) return null;
  const keyword = tokens[end + 1];
  let last = end;
  let attributes = '';
  if (/^(with|assert)$/.test(keyword?.text) && tokens[end + 2]?.text === '{' && !keyword.newline) {
    last = tokens.findIndex((token, at) => at > end && token.depth === 0 && token.text === '}');
    const words = tokens.slice(end + 2, last + 1).map((token) => token.text);
    attributes = `, { ${keyword.text}: ${words.join(' ')} }`;
  }
  const load = `await ${IMPORT_FUNCTION}(${tokens[end].text}${attributes})`;
  // Lines that it took are given back, so that later errors name the right one.
  const lines = '\n'.repeat(tokens.slice(index + 1, last + 1).filter((token) => token.newline).length);
  const edit = (text) => [tokens[index].start, tokens[last].end, text + lines];
  if (end === index + 1) return edit(load);
  const words = tokens.slice(index + 1, end - 1).map((token) => token.text);
  const names = [];
  let namespace;
  for (let at = 0; at < words.length; at++) {
    const renamed = words[at + 1] === 'as' ? words[at + 2] : undefined;
    if (words[at] === '*') namespace = renamed;
    else if (/^[{},]$/.test(words[at])) continue;
    else if (renamed) names.push(`${words[at]}: ${renamed}`);
    else names.push(words.lastIndexOf('{', at) < 0 ? `default: ${words[at]}` : words[at]);
    if (renamed) at += 2;
  }
  const pattern = `{ ${names.join(', ')} }`;
  if (!namespace) return edit(`var ${pattern} = ${load}`);
  return edit(`var ${namespace} = ${load}${names.length ? `, ${pattern} = ${namespace}` : ''}`);
}

// Values

const JUPYTER_DISPLAY = Symbol.for('Jupyter.display');

// Every MIME type that a value offers, plain text first. A promise if the value's own method gives one.
function richData(value) {
  const method = value?.[JUPYTER_DISPLAY];
  const offered = typeof method === 'function' ? method.call(value) : undefined;
  return util.types.isPromise(offered) ? offered.then((found) => bundle(value, found)) : bundle(value, offered);
}

function bundle(value, offered) {
  const data = { 'text/plain': plainText(value) };
  for (const [mime, item] of Object.entries(offered ?? {})) data[mime] = asTextOrBase64(mime, item);
  if (isPlain(value) && !('application/json' in data)) {
    const text = toJson(value);
    if (text !== undefined && text.length <= MAX_JSON_VALUE) data['application/json'] = JSON.parse(text);
  }
  return data;
}

function plainText(value) {
  if (typeof value === 'string') return util.inspect(value, { maxStringLength: Infinity, breakLength: Infinity });
  return util.inspect(value, { depth: 4, maxArrayLength: 1000, maxStringLength: MAX_JSON_VALUE });
}

function isPlain(value) {
  if (typeof value !== 'object' || value === null) return false;
  const prototype = Object.getPrototypeOf(value);
  return Array.isArray(value) || prototype === null || prototype === Object.prototype;
}

function toJson(value) {
  try {
    return JSON.stringify(value);
  } catch {
    return undefined;
  }
}

function asTextOrBase64(mime, value) {
  if (value instanceof Uint8Array) return Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString('base64');
  if (mime === 'application/json' || mime.endsWith('+json')) return value === undefined ? null : JSON.parse(JSON.stringify(value));
  return String(value);
}

// An error as name, value and lines, without the frames below the cell.
function describe(error, details, source) {
  if (!util.types.isNativeError(error) && !(error instanceof Error)) {
    const text = plainText(error);
    return { name: error?.constructor?.name ?? typeof error, value: text, traceback: [`Uncaught ${text}`] };
  }
  const value = String(error.message);
  const name = String(error.name);
  if (details && error instanceof SyntaxError && details.url) {
    const lines = source.split('\n');
    const number = Math.min(details.lineNumber, lines.length - 1);
    const line = lines[number];
    const caret = `${' '.repeat(Math.min(details.columnNumber, line.length))}^`;
    const where = `${details.url}:${number + 1}`;
    return { name, value, traceback: [where, line, caret, '', `${name}: ${value}`] };
  }
  const lines = util.inspect(error).split('\n');
  const ours = /^\s+at .*(node:inspector|node:internal)/;
  return { name, value, traceback: lines.filter((line) => !ours.test(line) && !line.includes(__filename)) };
}

// The runtime

function startRuntime(readFd, writeFd) {
  const exitProcess = process.exit.bind(process);
  const shared = new Int32Array(new SharedArrayBuffer(12));
  const outputs = [1, 2].map((fd) => new Output(fd));
  Object.defineProperty(process, 'stdout', { value: outputs[0], configurable: true, enumerable: true, writable: true });
  Object.defineProperty(process, 'stderr', { value: outputs[1], configurable: true, enumerable: true, writable: true });
  const toController = new MessageChannel();
  const toSentinel = new MessageChannel();
  const worker = (role, data, ports) => {
    const started = new Worker(__filename, { workerData: { role, shared, ...data }, transferList: ports, env: {}, execArgv: [] });
    started.on('error', (error) => {
      fs.writeSync(2, `kernel: ${role} failed: ${error.stack}\n`);
      exitProcess(70);
    });
  };
  worker('controller', { readFd, writeFd, runtime: toController.port2, signals: toSentinel.port1 }, [toController.port2, toSentinel.port1]);
  worker('sentinel', { controller: toSentinel.port2 }, [toSentinel.port2]);

  const port = toController.port1;
  const asyncIds = relaxAsyncIds();
  const evaluator = new Evaluator();
  let current = {};

  const send = (message) => {
    const body = encode(message);
    // A controller that cannot get rid of its frames slows the program down instead of growing.
    for (let unsent; (unsent = Atomics.load(shared, UNSENT)) > MAX_UNSENT; ) Atomics.wait(shared, UNSENT, unsent, 1000);
    port.postMessage({ kind: 'frame', body });
    Atomics.add(shared, UNSENT, body.length);
  };

  const execute = ({ serial, id, code, count, silent }) => {
    current = { id, serial };
    // A program that listens to SIGINT takes the signal from the sentinel; a new cell takes it back.
    if (process.listenerCount('SIGINT')) {
      const armed = Atomics.load(shared, ARMED);
      Atomics.notify(shared, WAKE_SENTINEL);
      Atomics.wait(shared, ARMED, armed, 1000);
    }
    port.postMessage({ kind: 'begun', serial });
    let source = code;
    try {
      source = translate(code);
    } catch (error) {
      send({ type: 'error', id, ...safely(() => describe(error)), ...error.told });
      port.postMessage({ kind: 'finished', serial, status: 'error' });
      return;
    }
    const { text, isExpression } = rewriteOrLeave(source);
    const url = silent ? `cell-silent-${serial}.js` : `cell-${count}.js`;
    evaluator.run(text, url, async (details, outcome) => {
      let status = 'ok';
      try {
        if (details) throw outcome;
        // The value of a cell that ends in a promise is what it resolves to.
        const value = await outcome;
        if (value !== undefined && isExpression && !silent) send({ type: 'result', id, data: await richData(value), metadata: {} });
      } catch (error) {
        send({ type: 'error', id, ...safely(() => describe(error, details, source)) });
        status = 'error';
      }
      port.postMessage({ kind: 'finished', serial, status });
    });
  };

  port.on('message', (message) => {
    if (message.kind === 'execute') execute(message);
    else if (message.kind === 'exit') exitProcess(message.code);
    else if (message.kind === 'settle') {
      asyncIds.reset();
      for (const output of outputs) output.reset();
      port.postMessage({ ...message, kind: 'settled' });
    }
  });

  const display = (value, mime, metadata = {}) => {
    const show = (data) => send({ type: 'display', id: current.id ?? null, data, metadata });
    if (mime !== undefined) return show({ 'text/plain': `<${mime}>`, [mime]: asTextOrBase64(mime, value) });
    const data = richData(value);
    return util.types.isPromise(data) ? data.then(show) : show(data);
  };
  // Ends the cell and not the context. It must not return to its caller, so it waits to be terminated.
  const exitCell = (code = process.exitCode ?? 0) => {
    port.postMessage({ kind: 'exited', serial: current.serial, code: Number(code) || 0 });
    const never = new Int32Array(new SharedArrayBuffer(4));
    for (;;) Atomics.wait(never, 0, 0);
  };
  prepareGlobals(display, exitCell);
  Atomics.wait(shared, ARMED, 0);
  port.postMessage({ kind: 'started' });
}

function safely(action) {
  try {
    return action();
  } catch {
    return { name: 'Error', value: '<the error could not be formatted>', traceback: [] };
  }
}

// Evaluates on this thread through an inspector session of our own.
class Evaluator {
  constructor() {
    this.session = new inspector.Session();
    this.session.connect();
    // Objects come back as ids; this function of ours, known to the session by id, receives the objects themselves.
    globalThis.__receive = (value) => (this.received = value);
    this.receiver = this.post('Runtime.evaluate', { expression: '__receive' }).result.objectId;
    delete globalThis.__receive;
  }

  // For commands that answer at once.
  post(method, parameters) {
    let answer;
    this.session.post(method, parameters, (_error, result) => (answer = result));
    return answer;
  }

  // Calls `done(details, value)`: `details` only for an exception, whose value then is the one thrown. Not called when the
  // evaluation was terminated: the controller, who did that, goes on by itself.
  run(text, url, done) {
    const expression = `${text}\n//# sourceURL=${url}`;
    this.session.post('Runtime.evaluate', { expression, replMode: true }, (error, answer) => {
      if (error) return;
      const details = answer.exceptionDetails && { ...answer.exceptionDetails, url };
      const value = this.take(details ? details.exception : answer.result);
      this.post('Runtime.discardConsoleEntries');
      done(details, value);
    });
  }

  take(remote) {
    if (!remote || remote.type === 'undefined') return undefined;
    if (remote.type === 'bigint') return BigInt(remote.unserializableValue.slice(0, -1));
    if (remote.unserializableValue !== undefined) return Number(remote.unserializableValue);
    if (remote.objectId === undefined) return remote.value;
    this.post('Runtime.callFunctionOn', {
      objectId: this.receiver,
      functionDeclaration: 'function (value) { this(value); }',
      arguments: [{ objectId: remote.objectId }],
    });
    this.post('Runtime.releaseObject', { objectId: remote.objectId });
    const value = this.received;
    this.received = undefined;
    return value;
  }
}

// Termination unwinds a timer's callback past Node's bookkeeping of async ids, and Node aborts when it then finds them
// unbalanced. That check is for Node's own developers: the flag turns it off. Where the binding is still to be had (before
// Node 24) it does so without the flag, and clears the ids after an interrupt, which else only misname async resources.
function relaxAsyncIds() {
  const quiet = process.noDeprecation;
  process.noDeprecation = true;
  try {
    const binding = process.binding('async_wrap');
    binding.async_hook_fields[binding.constants.kCheck] = 0;
    return { reset: () => binding.clearAsyncIdStack() };
  } catch {
    return { reset: () => {} };
  } finally {
    process.noDeprecation = quiet;
  }
}

// stdout and stderr of user code. Every write is complete when it returns, so output keeps its place before the frame that
// follows it, and a termination in the middle of one leaves nothing but a stale state, which `reset` throws away.
class Output extends Writable {
  constructor(fd) {
    super({ decodeStrings: true });
    this.fd = fd;
    this._type = 'pipe';
  }

  _write(chunk, _encoding, done) {
    try {
      for (let written = 0; written < chunk.length; ) written += writeSome(this.fd, chunk.subarray(written));
      done();
    } catch (error) {
      done(error);
    }
  }

  // A program may end or destroy its stdout; the next cell still has one.
  _destroy(error, done) {
    done(error);
    this.reset();
  }

  reset() {
    this._writableState = new Writable.WritableState({ decodeStrings: true }, this, false);
    this.removeAllListeners('error');
  }
}

function writeSome(fd, buffer) {
  try {
    return fs.writeSync(fd, buffer);
  } catch (error) {
    if (error.code !== 'EAGAIN') throw error;
    // Another process has made the pipe non-blocking for everybody.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5);
    return 0;
  }
}

function prepareGlobals(display, exitCell) {
  const Module = require('node:module');
  const own = (name, value) =>
    Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
  // Cells assign to `var crypto`, which Node offers as a property without a setter.
  for (const [name, property] of Object.entries(Object.getOwnPropertyDescriptors(globalThis))) {
    if (property.get && property.configurable) Object.defineProperty(globalThis, name, { ...property, set: (value) => own(name, value) });
  }
  // Compiled as if it lay in the working folder, so that `import()` finds the packages there.
  const file = path.join(process.cwd(), 'cell.js');
  const module = new Module(file);
  module.filename = file;
  // Packages may be named with where they come from, as Deno names them.
  module._compile("exports.load = (specifier, options) => import(String(specifier).replace(/^npm:/, ''), options);", file);
  own(IMPORT_FUNCTION, module.exports.load);
  module.exports = {};
  own('require', Module.createRequire(file));
  globalThis.require.main = module;
  own('module', module);
  own('exports', module.exports);
  own('display', display);
  process.argv.length = 1;
  process.exit = exitCell;
  // A rejection that nobody handles arrives here as well: reported, not fatal.
  process.on('uncaughtException', (error) => {
    console.error('Uncaught %s', safely(() => describe(error)).traceback.join('\n'));
  });
}

// The controller

function startController({ readFd, writeFd, runtime, signals, shared }) {
  const net = require('node:net');
  const debuggee = new inspector.Session();
  debuggee.connectToMainThread();
  const writable = new net.Socket({ fd: writeFd, readable: readFd === writeFd, writable: true });
  const readable = readFd === writeFd ? writable : new net.Socket({ fd: readFd, readable: true, writable: false });
  const waiting = [];
  let running = null;
  let serial = 0;
  let count = 0;
  let parts = [];

  const send = (body, account = 0) => {
    const pieces = frames(body);
    pieces.forEach((piece, index) => {
      const isLast = index === pieces.length - 1;
      writable.write(piece, () => {
        if (!isLast || !account) return;
        Atomics.sub(shared, UNSENT, account);
        Atomics.notify(shared, UNSENT);
      });
    });
  };
  const leave = (code) => {
    runtime.postMessage({ kind: 'exit', code });
    setTimeout(() => process.kill(process.pid, 'SIGKILL'), 1000);
  };
  const fail = (reason) => {
    fs.writeSync(2, `kernel: ${reason}\n`);
    leave(70);
  };
  const next = () => {
    if (running || !waiting.length) return;
    const message = waiting.shift();
    if (message.type === 'shutdown') return leave(0);
    if (message.type !== 'execute' || typeof message.code !== 'string') return fail('unknown message');
    const silent = Boolean(message.silent);
    if (!silent) count += 1;
    const id = message.id ?? null;
    running = { serial: ++serial, id, started: false, ending: null, finished: null, stops: 0 };
    runtime.postMessage({ kind: 'execute', serial, id, code: message.code, count, silent });
  };
  const done = (status) => {
    send(encode({ type: 'done', id: running.id, status, execution_count: count }));
    running = null;
    next();
  };
  const start = () => {
    if (!running.started) send(encode({ type: 'start', id: running.id, execution_count: count }));
    running.started = true;
  };
  // Stops whatever the runtime is doing; `settled` comes when it turns its event loop again.
  const terminate = (serial, stops) => {
    debuggee.post('Runtime.terminateExecution', () => runtime.postMessage({ kind: 'settle', serial, stops }));
  };
  // Ends the cell. No other begins before the latest stop is settled, or it might be the one to be stopped; an earlier one
  // may never be, since the later has stopped even that.
  const stop = (ending) => {
    running.ending ??= ending;
    running.stops += 1;
    terminate(running.serial, running.stops);
  };
  const stopped = ({ status, ...error }) => {
    start();
    send(encode({ type: 'error', id: running.id, ...error, traceback: [`${error.name}: ${error.value}`] }));
    done(status);
  };

  readable.on('data', (chunk) => {
    try {
      reader.push(chunk);
    } catch (error) {
      fail(error.message);
    }
  });
  readable.on('end', () => leave(0));
  readable.on('error', () => leave(0));
  writable.on('error', () => leave(0));
  const reader = new FrameReader((payload, more) => {
    parts.push(payload);
    if (parts.reduce((sum, part) => sum + part.length, 0) > MAX_MESSAGE) throw new Error('message over its maximum');
    if (more) return;
    const message = JSON.parse(Buffer.concat(parts).toString('utf8'));
    parts = [];
    if (typeof message !== 'object' || message === null) throw new Error('message is not an object');
    waiting.push(message);
    next();
  });

  signals.on('message', () => {
    if (!running) return;
    const { serial } = running;
    // A call that waits for a child returns by itself when the child gets the signal too, and V8 aborts when an evaluation
    // is terminated in the moment of its end: a cell that is about to end is let end.
    setTimeout(() => {
      if (running?.serial !== serial) return;
      stop({ status: 'interrupted', name: 'Interrupted', value: 'the cell was interrupted' });
    }, INTERRUPT_GRACE_MS);
  });
  runtime.on('message', (message) => {
    if (message.kind === 'started') {
      send(encode({ type: 'ready', protocol: PROTOCOL, language: LANGUAGE, version: process.versions.node }));
    } else if (message.kind === 'frame') {
      send(Buffer.from(message.body.buffer, message.body.byteOffset, message.body.byteLength), message.body.length);
    } else if (!running || message.serial !== running.serial) {
      // A cell that was given up has come to its end after all; or a callback that outlived its cell wants to exit.
      if (message.kind === 'exited') terminate();
    } else if (message.kind === 'exited') {
      stop({ status: 'error', name: 'SystemExit', value: String(message.code), exit_code: message.code });
    } else if (message.kind === 'begun') {
      start();
      // The interrupt came before the cell: it has stopped something else at most.
      if (running.ending) stop(running.ending);
    } else if (message.kind === 'finished') {
      running.finished = message.status;
      if (!running.ending) done(message.status);
    } else if (message.kind === 'settled' && message.stops === running.stops) {
      if (running.finished) done(running.finished);
      else stopped(running.ending);
    }
  });
}

// The sentinel

function startSentinel({ controller, shared }) {
  const guarded = (text) => {
    const script = new vm.Script(text);
    return () => script.runInThisContext({ breakOnSigint: true });
  };
  globalThis.park = () => {
    Atomics.add(shared, ARMED, 1);
    Atomics.notify(shared, ARMED);
    Atomics.wait(shared, WAKE_SENTINEL, 0);
  };
  const parked = guarded('park()');
  globalThis.watch = () => {
    for (;;) {
      try {
        return parked();
      } catch {
        controller.postMessage('interrupt');
      }
    }
  };
  // Two guards, one in the other: Node gives SIGINT its deadly default back when the last one ends, and the outer one
  // stays while the inner one, which takes the signal, is set up again. Both end when a cell wants SIGINT taken back.
  const watching = guarded('watch()');
  for (;;) {
    try {
      watching();
    } catch {
      controller.postMessage('interrupt');
    }
  }
}

// The nonce transport

// Lines on our own stdin and stdout, for providers that offer no descriptor but those. The kernel is a child that speaks
// frames on a socket and has pipes for its standard streams: the same program as with the other transport.
function startRelay(nonce) {
  const { spawn } = require('node:child_process');
  const environment = { ...process.env, SANDSTORM_KERNEL_FD: '3' };
  const kernel = spawn(process.execPath, [NO_ID_CHECKS, ...process.execArgv, __filename, ...process.argv.slice(2)], {
    env: environment,
    stdio: ['pipe', 'pipe', 'pipe', 'pipe'],
    detached: true,
  });
  const control = kernel.stdio[3];
  const inward = `${nonce}>`;
  let outputSeen = false;
  const emit = (kind, payload) => {
    for (let start = 0; start < payload.length; start += MAX_LINE) {
      const isLast = start + MAX_LINE >= payload.length;
      const name = kind === 'message' && !isLast ? 'part' : kind;
      const line = Buffer.from(`${nonce}<${name}:${payload.subarray(start, start + MAX_LINE).toString('base64')}\n`);
      for (let written = 0; written < line.length; ) written += writeSome(1, line.subarray(written));
    }
  };
  const signal = (name) => {
    try {
      process.kill(-kernel.pid, name);
    } catch {
      // It has ended already.
    }
  };
  for (const name of ['stdout', 'stderr']) {
    kernel[name].on('data', (data) => {
      outputSeen = true;
      emit(name, data);
    });
  }

  // Output that was written before a frame is in its pipe when the frame arrives. A whole turn of the event loop without
  // any means that it has been read; output that never pauses is not waited for.
  const held = [];
  const release = (turnsLeft) => {
    if (outputSeen && turnsLeft > 0) {
      outputSeen = false;
      setImmediate(release, turnsLeft - 1);
      return;
    }
    for (const [kind, payload] of held.splice(0)) emit(kind, payload);
  };
  const reader = new FrameReader((payload, more) => {
    if (!held.length) {
      outputSeen = true;
      setImmediate(release, 64);
    }
    held.push([more ? 'part' : 'message', Buffer.from(payload)]);
  });
  control.on('data', (chunk) => reader.push(chunk));

  const obey = (line) => {
    if (!line.startsWith(inward)) return;
    const [kind, text = ''] = line.slice(inward.length).trim().split(':');
    // Half of a line, which an earlier controller left: no base64 of ours.
    if (text.length % 4) return;
    const payload = Buffer.from(text, 'base64');
    if (kind === 'message' || kind === 'part') {
      const header = Buffer.alloc(4);
      header.writeUInt32LE((payload.length | (kind === 'part' ? MORE : 0)) >>> 0);
      control.write(Buffer.concat([header, payload]));
    } else if (kind === 'stdin') kernel.stdin.write(payload);
    else if (kind === 'stdin_end') kernel.stdin.end();
    else if (kind === 'interrupt') signal('SIGINT');
  };
  const stop = () => {
    control.end();
    setTimeout(signal, 2000, 'SIGKILL').unref();
  };
  require('node:readline').createInterface({ input: process.stdin, crlfDelay: Infinity }).on('line', obey).on('close', stop);
  process.on('SIGINT', () => signal('SIGINT'));
  for (const stream of [control, kernel.stdin]) stream.on('error', () => {});
  kernel.on('exit', (code, name) => {
    const leave = () => {
      signal('SIGKILL');
      process.exit(code ?? 128 + require('node:os').constants.signals[name]);
    };
    const drained = (turnsLeft) => {
      if (turnsLeft === 0 || (!outputSeen && !held.length)) return leave();
      outputSeen = false;
      setImmediate(drained, turnsLeft - 1);
    };
    outputSeen = true;
    setImmediate(drained, 64);
  });
}

function main() {
  if (!isMainThread) return workerData.role === 'controller' ? startController(workerData) : startSentinel(workerData);
  const take = (name) => {
    const value = process.env[name];
    delete process.env[name];
    return value;
  };
  const nonce = take('SANDSTORM_KERNEL_NONCE');
  const both = take('SANDSTORM_KERNEL_FD');
  const readFd = take('SANDSTORM_KERNEL_IN') ?? both;
  const writeFd = take('SANDSTORM_KERNEL_OUT') ?? both;
  if (nonce) return startRelay(nonce);
  if (readFd === undefined || writeFd === undefined) {
    console.error('this is the kernel of a context: it needs SANDSTORM_KERNEL_FD, _IN and _OUT, or _NONCE');
    process.exit(2);
  }
  return startRuntime(Number(readFd), Number(writeFd));
}

main();
