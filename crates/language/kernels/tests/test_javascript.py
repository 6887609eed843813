"""The JavaScript kernel."""

import os
import tempfile
import time
import unittest

from tests.contract import DescriptorContract, NonceContract
from tests.driver import KernelTest

CODE = {
    "assign": "const x = 41",
    "own pid": "process.pid",
    "statement last": "1\nconst y = 2",
    "redefine": [
        ("const r = 1", "let r = 2", "r", "2"),
        ("let r2 = 1", "function r2() { return 3 }", "r2()", "3"),
        ("function helper() { return 1 }\nfunction main() { return helper() }", "const helper = () => 2", "main()", "2"),
        ("class C { a = 1 }", "class C { a = 2 }", "new C().a", "2"),
        ("const { p, q: [s] } = { p: 1, q: [2] }", "const [p, s] = [3, 4]", "p + s", "7"),
        ("let again = 5", "let again", "typeof again", "'undefined'"),
    ],
    "await": "const awaited = await new Promise((resolve) => setTimeout(resolve, 10, 7))\nawaited",
    "background task": "setTimeout(() => console.log('from the background'), 200); undefined",
    "raise": "function inner() {\n  throw new TypeError('bad é')\n}\ninner()",
    "raised": ("TypeError", "bad é"),
    "syntax error": "const y = 1\nconst oops = (1 + ]\n",
    "exit 3": "process.exit(3)",
    "print both": "console.log('to stdout'); console.error('to stderr')",
    "print then wait": "console.log('early'); require('fs').readSync(0, Buffer.alloc(100)); 1",
    "subprocess": "require('child_process').execFileSync('echo', ['from a child'], { stdio: 'inherit' })",
    "much output": "for (let i = 0; i < 300_000; i++) console.log('0123456789')\nprocess.stdout.write('END')",
    "read a line": "await new Promise((resolve) => process.stdin.once('data', (data) => resolve(String(data).trim())))",
    "read all": "require('fs').readFileSync(0, 'utf8')",
    "display html": "display('<b>hi</b>', 'text/html')",
    "display png": "display(Buffer.from([0x89, 0x50, 0x4e, 0x47]), 'image/png')",
    "json value": "({ a: [1, 2, null] })",
    "50 MB": "'a'.repeat(50_000_000)",
    "150 MB": "'a'.repeat(150_000_000)",
    "length of len_": "len_.length",
    "lone surrogate": "'\\ud800'",
    "display lone surrogate": "display('\\ud800', 'text/html')",
    "write bytes": "require('fs').writeSync(1, Buffer.from(%s))",
    "environment": "Object.keys(process.env).join(',')",
    "interrupted": "Interrupted",
    "tight loop": "console.log('started')\nwhile (true) {}",
    "silent loop": "while (true) {}",
    "await for ever": "console.log('started')\nawait new Promise(() => {})",
    "loop after await": "await new Promise((resolve) => setTimeout(resolve, 10))\nconsole.log('started')\nwhile (true) {}",
    "display a lot": "for (let i = 0; i < 200; i++) display('x'.repeat(20_000))",
    "own SIGINT handler": "process.on('SIGINT', () => console.log('mine')); 1",
    "recursion": "function f() { return f() }\nf()",
    "recursion error": "RangeError",
    "kill itself": "process.kill(process.pid, 'SIGKILL')",
    "descriptors of a child": "require('child_process').execFileSync('ls', ['-l', '/proc/self/fd'], { stdio: ['ignore', 'pipe', 'ignore'] }).toString().replace(/ 1 ->.*/, '')",
    "wait for a child": "require('child_process').execFileSync('sh', ['-c', 'echo started; exec sleep 1000'], { stdio: 'inherit' })",
}


class JavaScriptTest(KernelTest):
    language = "javascript"
    code = CODE


class Socket(JavaScriptTest, DescriptorContract):
    def test_values(self):
        for code, expected in (
            ("10n ** 20n", "100000000000000000000n"),
            ("-0", "-0"),
            ("NaN", "NaN"),
            ("null", "null"),
            ("Symbol('s')", "Symbol(s)"),
            ("new Map([[1, 2]])", "Map(1) { 1 => 2 }"),
            ("{ a: 1 }", "{ a: 1 }"),
            ("{ let a = 5; a }", "5"),
            ("Promise.resolve(9)", "9"),
            ("(x => x)", "[Function (anonymous)]"),
            ("'a\\nb'", "'a\\nb'"),
        ):
            with self.subTest(code):
                self.assertEqual(self.value(code), expected)

    def test_a_rejected_value_is_an_error_of_the_cell(self):
        outcome = self.kernel.run("(async () => { throw new RangeError('async') })()")
        self.assertEqual((outcome.status, outcome.error["name"]), ("error", "RangeError"))
        self.assertEqual(self.kernel.streams["stderr"], b"")

    def test_unhandled_errors_are_reported_and_not_fatal(self):
        self.kernel.run("Promise.reject(new Error('floating')); 1")
        self.kernel.wait_for("stderr", "floating")
        self.kernel.run("setTimeout(() => { throw new Error('late') }, 10); 1")
        self.kernel.wait_for("stderr", "late")
        self.assertNotIn("kernels", self.kernel.streams["stderr"].decode())
        self.assertEqual(self.value("1 + 1"), "2")

    def test_thrown_values_and_causes(self):
        self.assertEqual(self.kernel.run("throw 'text'").error["value"], "'text'")
        self.assertEqual(self.kernel.run("throw null").status, "error")
        text = "\n".join(self.kernel.run("throw new Error('outer', { cause: new Error('root') })").error["traceback"])
        self.assertIn("[cause]: Error: root", text)
        self.assertEqual(self.kernel.run("throw Object.create(null)").status, "error")
        self.assertEqual(self.kernel.run("throw new Proxy({}, { get() { throw 1 } })").status, "error")

    def test_packages_may_be_named_with_where_they_come_from(self):
        self.assertEqual(self.value("import { sep } from 'npm:path'\nsep"), "'/'")
        self.assertEqual(self.value("(await import('npm:path')).sep"), "'/'")

    def test_exports_are_declarations(self):
        cases = (
            ("export const ex = 1\nexport let ey = 2, ez; export function ef() { return 3 }\n[ex, ey, ez, ef()]", "[ 1, 2, undefined, 3 ]"),
            ("export class EC { a() { return 4 } }\nexport async function eg() { return 5 }\n[new EC().a(), await eg()]", "[ 4, 5 ]"),
            ("export default function eh() { return 6 }\neh()", "6"),
            ("export default 7", "7"),
            ("const ei = 8\nexport { ei, ex as other };\nei", "8"),
            ("9\nexport {}", "9"),
            ("const ej = { export: 10 }; ej.export", "10"),
        )
        for code, expected in cases:
            with self.subTest(code):
                self.assertEqual(self.value(code), expected)
        for code in ("export {};", "export const ek = 1"):
            self.assertIsNone(self.kernel.run(code).result)
        self.assertEqual(self.kernel.run("export { a } from 'node:fs'").error["name"], "SyntaxError")
        self.assertIn("cell-", self.kernel.run("export const el = 1\n\nnull.x").error["traceback"][1])

    def test_import_of_json(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write('{"a": [1, 2]}')
            file.flush()
            code = "import found from %r with {\n  type: 'json'\n}\nfound.a" % file.name
            outcome = self.kernel.run(code)
            if outcome.error and "import" in outcome.error["value"].lower():
                self.skipTest("this Node has no `with`: %s" % outcome.error["value"])
            self.assertEqual(outcome.value, "[ 1, 2 ]")

    def test_require_and_import(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        package = os.path.join(folder.name, "node_modules", "only-esm")
        os.makedirs(package)
        for name, text in (
            ("package.json", '{"name": "only-esm", "type": "module", "exports": {"import": "./main.js"}}'),
            ("main.js", "export const answer = 42; export default 'd'"),
            ("../../local.cjs", "module.exports = 'local'"),
            ("../../module.mjs", "export default 'module'"),
        ):
            with open(os.path.join(package, name), "w") as file:
                file.write(text)
        here = os.getcwd()
        self.addCleanup(os.chdir, here)
        os.chdir(folder.name)
        self.kernel = self.new_kernel()
        for code, expected in (
            ("require('./local.cjs')", "'local'"),
            ("(await import('./module.mjs')).default", "'module'"),
            ("(await import('only-esm')).answer", "42"),
            ("import d, { answer as a } from 'only-esm'\nd + a", "'d42'"),
            ("import {\n  answer,\n} from 'only-esm'\nanswer", "42"),
            ("import * as all from 'only-esm'; import 'node:fs'; all.default", "'d'"),
            ("import('node:path').then((p) => p.sep)", "'/'"),
            ("[1].map(() => `${typeof import('fs').then}`)[0]", "'function'"),
            ("({ import(x) { return x } }).import(3)", "3"),
            ("require.main === module", "true"),
            ("const crypto = require('crypto'); typeof crypto.createHash", "'function'"),
            ("const { performance } = require('perf_hooks'); typeof performance.now", "'function'"),
            ("const fetch = 3, process_ = process; fetch", "3"),
        ):
            with self.subTest(code):
                self.assertEqual(self.value(code), expected)
        text = self.kernel.run("import {\n  answer\n} from 'only-esm'\nnull.x").error["traceback"][1]
        self.assertRegex(text, r"cell-\d+\.js:4:")

    def test_the_rewrite_leaves_text_alone(self):
        for code, expected in (
            ("'const a; let b; import(1)'", "'const a; let b; import(1)'"),
            ("`const ${'let'} ${`import(${1})`} }`", "'const let import(1) }'"),
            ("/const [/'\"`]/.source.length", "12"),
            ("const n1 = 8; const g = 2; const i = 1; n1 / g / i // const", "4"),
            ("if (true) /const '/.test('const \\'')", None),
            ("const o = { const: 1, let: 2, class: 3, import: 4 }; o.const + o.let + o.class + o.import", "10"),
            ("const fn = function () { let z = 1; { const z = 2 } return z }\nfn()", "1"),
            ("const fs_ = []; for (let i = 0; i < 2; i++) fs_.push(() => i)\nfs_.map((f) => f()).join()", "'0,1'"),
            ("class A {\n  static n = 1\n}\n[1].length", "1"),
            ("const K = class Named {}\nK.name", "'Named'"),
            ("let a1, b1 = 2,\n  c1\nlet d1\n[a1, b1, c1, d1]", None),
            ("var let_ = 1; let_", "1"),
            ("const x1 = 4\n/* const */ x1", "4"),
            ("const re = x => /}/.test(x)\nre('}')", "true"),
            ("const t = { a: 1 }\nconst h = t.a / 2; const w = `a${{ a: 1 }.a}/`; h + w", "'0.5a1/'"),
            ("#!/usr/bin/env node\nconst hb = 1; hb", "1"),
            ("label: for (const v of [1]) { continue label }\nconst after = 6; after", "6"),
            ("async function af() { return 1 }\nawait af()", "1"),
            ("const é = 1, $ = 2, _ = 3; é + $ + _", "6"),
        ):
            with self.subTest(code):
                outcome = self.kernel.run(code)
                self.assertEqual(outcome.status, "ok", outcome.error)
                if expected is not None:
                    self.assertEqual(outcome.value, expected)
        self.assertEqual(self.kernel.run("let a2, b2 = 2,\n  c2\nlet d2\nString([a2, b2, c2, d2])").value, "',2,,'")

    def test_a_long_program_is_rewritten_quickly(self):
        code = "\n".join("const v%d = '%s'; v%d" % (n, "s" * 50, n) for n in range(20_000))
        self.assertEqual(self.kernel.run(code).value, "'%s'" % ("s" * 50))
        self.assertEqual(self.value("const long = '%s'\nlong.length" % ("s" * 5_000_000)), "5000000")

    def test_interrupt_of_callbacks(self):
        for where in ("setTimeout", "setImmediate", "process.nextTick", "queueMicrotask"):
            with self.subTest(where):
                self.interrupt("%s(() => { console.log('started in %s'); while (true) {} })\nawait new Promise(() => {})" % (where, where), "started in " + where)
        self.assertEqual(self.value("await new Promise((r) => setTimeout(() => setImmediate(() => process.nextTick(r, 1)), 10))"), "1")

    def test_interrupt_of_a_wait_in_c(self):
        self.interrupt("console.log('started')\nAtomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)")

    def test_interrupt_of_a_regular_expression(self):
        self.interrupt("console.log('started');\n/^(a+)+$/.test('a'.repeat(60) + 'b')")

    def test_a_cell_waits_behind_a_stuck_callback_and_can_be_interrupted(self):
        self.kernel.run("setTimeout(() => { console.log('stuck'); while (true) {} }, 10); 1")
        self.kernel.wait_for("stdout", "stuck")
        self.kernel.send({"type": "execute", "id": "behind", "code": "1"})
        time.sleep(0.2)
        self.kernel.interrupt()
        # Whether the cell was quicker than the interrupt that freed it is open; that it begins and ends is not.
        messages = [self.kernel.receive()["type"]]
        while messages[-1] != "done":
            messages.append(self.kernel.receive()["type"])
        self.assertEqual(messages[0], "start")
        self.assertLessEqual(len(messages), 4)
        self.assertEqual(self.value("1 + 1"), "2")

    def test_exit_in_a_callback(self):
        outcome = self.kernel.run("setTimeout(() => process.exit(4), 10)\nawait new Promise(() => {})")
        self.assertEqual(outcome.error["exit_code"], 4)
        self.kernel.run("setTimeout(() => { console.log('leaving'); process.exit(4) }, 10); 1")
        self.kernel.wait_for("stdout", "leaving")
        self.assertEqual(self.value("1 + 1"), "2")

    def test_rich_values(self):
        code = "({ [Symbol.for('Jupyter.display')]: () => ({ 'text/html': '<i>', 'image/svg+xml': '<svg/>', 'image/png': new Uint8Array([1]) }) })"
        data = self.kernel.run(code).result["data"]
        self.assertEqual((data["text/html"], data["image/svg+xml"], data["image/png"]), ("<i>", "<svg/>", "AQ=="))
        self.assertEqual(list(data)[0], "text/plain")
        shown = self.kernel.run("display({ [Symbol.for('Jupyter.display')]: async () => ({ 'text/html': '<u>' }) })").displays
        self.assertEqual(shown[0]["data"]["text/html"], "<u>")
        self.assertEqual(self.kernel.run("const c = {}; c.c = c; c").status, "ok")

    def test_console_does_not_keep_objects(self):
        code = "for (let i = 0; i < 500; i++) console.log(new Array(50_000).fill(i).length); 1"
        self.assertEqual(self.kernel.run(code).status, "ok")

    def test_output_before_a_display_is_flushed_in_order(self):
        self.kernel.run("console.log('a'.repeat(100_000)); display('mark')")
        self.assertGreaterEqual(len(self.kernel.wait_for("stdout", "a\n")), 100_000)

    def test_node_is_not_noisy(self):
        self.kernel.run("1")
        self.assertEqual(self.kernel.streams["stderr"], b"")
        self.assertEqual(self.value("process.argv.length"), "1")


class Pipes(JavaScriptTest, DescriptorContract):
    transport = "pipes"


class Nonce(JavaScriptTest, NonceContract):
    transport = "nonce"


if __name__ == "__main__":
    unittest.main()
