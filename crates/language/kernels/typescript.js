'use strict';
// The TypeScript context kernel: makes JavaScript of each cell. The binary puts this text before that of `javascript.js`,
// which does everything else. Cells are translated and not checked: types of other cells are not known here.
//
// The compiler is the `typescript` package beside `tsc`, else what Node offers itself (22.13 or later).

const typescript = (() => {
  const { createRequire, stripTypeScriptTypes } = require('node:module');
  const { existsSync, realpathSync } = require('node:fs');
  const { isMainThread } = require('node:worker_threads');
  const { delimiter, dirname, join } = require('node:path');
  // A bare name is one of the search path's.
  const [, , tsc = 'tsc'] = process.argv;
  let compile;

  const found = () => {
    const folders = tsc.includes('/') ? [''] : (process.env.PATH ?? '').split(delimiter);
    const path = folders.map((folder) => join(folder, tsc)).find(existsSync);
    if (!path) throw new Error(`${tsc} is not installed`);
    return realpathSync(path);
  };

  // An error of the cell: what is wrong, and the lines that show where.
  const refused = (value, where, name = 'SyntaxError') => {
    const error = new Error(value);
    error.told = { name, value, traceback: [...where, `${name}: ${value}`] };
    return error;
  };

  const find = () => {
    const tried = [];
    try {
      const beside = join(dirname(found()), '../lib/typescript.js');
      return withPackage(createRequire(beside)(beside));
    } catch (error) {
      tried.push(`no compiler is beside ${tsc}: ${String(error.message).split('\n')[0]}`);
    }
    if (typeof stripTypeScriptTypes === 'function') return withNode;
    const missing = `TypeScript has no compiler here: Node ${process.versions.node} is none, and ${tried}`;
    throw refused(missing, [], 'Error');
  };

  const withPackage = (ts) => {
    if (typeof ts.transpileModule !== 'function') throw new Error('the package typescript has no transpileModule');
    const [major] = ts.version.split('.').map(Number);
    // An import that this cell does not use, a later one may.
    const keepImports =
      major >= 5 ? { verbatimModuleSyntax: true } : { preserveValueImports: true, importsNotUsedAsValues: ts.ImportsNotUsedAsValues.Preserve };
    const compilerOptions = {
      target: ts.ScriptTarget.ES2022,
      module: ts.ModuleKind.ESNext,
      isolatedModules: true,
      experimentalDecorators: true,
      jsx: ts.JsxEmit.React,
      ...keepImports,
    };
    return (code) => {
      const { outputText, diagnostics } = ts.transpileModule(code, { compilerOptions, reportDiagnostics: true, fileName: 'cell.ts' });
      const [error] = diagnostics.filter(({ category, start }) => category === ts.DiagnosticCategory.Error && start !== undefined);
      if (error) {
        const before = code.slice(0, error.start).split('\n');
        const line = code.split('\n')[before.length - 1];
        const mark = `${' '.repeat(before[before.length - 1].length)}^`;
        throw refused(ts.flattenDiagnosticMessageText(error.messageText, '\n'), [`cell.ts:${before.length}`, line, mark, '']);
      }
      // What marks a module is of no use to a cell.
      return outputText.replace(/^export \{\};\s*$/m, '');
    };
  };

  const withNode = (code) => {
    const warn = process.emitWarning;
    process.emitWarning = () => {};
    try {
      return stripTypeScriptTypes(code, { mode: 'transform' });
    } catch (error) {
      throw refused(error.message, ['cell.ts']);
    } finally {
      process.emitWarning = warn;
    }
  };

  // Loaded before the first cell, since an interrupt in the middle of it would leave half a compiler. Not where this process
  // only relays, and not in the other threads.
  if (isMainThread && !process.env.SANDSTORM_KERNEL_NONCE) {
    try {
      compile = find();
    } catch (error) {
      compile = () => {
        throw error;
      };
    }
  }

  const translate = (code) => {
    if (!/^\s*\{/.test(code)) return compile(code);
    // As in JavaScript, `{a: 1}` is an object when it can be one.
    try {
      return compile(`(${code}\n)`);
    } catch {
      return compile(code);
    }
  };
  return { name: 'typescript', translate };
})();

