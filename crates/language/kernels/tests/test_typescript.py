"""The TypeScript kernel: all that JavaScript's does, with types."""

import os
import unittest
from unittest import mock

from tests import driver
from tests.contract import DescriptorContract, NonceContract
from tests.driver import COMMANDS, KernelTest, missing
from tests.test_javascript import CODE

TSC = COMMANDS["typescript"][-1]


class TypeScriptTest(KernelTest):
    language = "typescript"
    code = CODE

    def setUp(self):
        if not os.path.exists(TSC):
            missing("%s is not installed" % TSC)
        super().setUp()


class Socket(TypeScriptTest, DescriptorContract):
    def test_types_are_taken_out(self):
        for code, expected in (
            ("const n: number = 3\nn + 1", "4"),
            ("interface P { a: number }\nfunction f(p: P): number { return p.a }\nf({ a: 4 })", "4"),
            ("enum E { A = 5, B }\nE.B", "6"),
            ("class C<T> { constructor(public value: T) {} }\nnew C<number>(3).value", "3"),
            ("namespace N { export const v = 1 }\nN.v", "1"),
            ("let text = 5 as unknown as string;\ntext", "5"),
            ("const seven = await Promise.resolve<number>(7)\nseven", "7"),
            ("export const exported: string = 'x'\nexported", "'x'"),
            ("{ a: 1 }", "{ a: 1 }"),
            ("{ const inner: number = 5; inner }", "5"),
        ):
            with self.subTest(code):
                self.assertEqual(self.value(code), expected)
        for code in ("type T = string", "abstract class A { abstract f(): void }", "export {}", "declare const d: number"):
            with self.subTest(code):
                outcome = self.kernel.run(code)
                self.assertEqual((outcome.status, outcome.result), ("ok", None))

    def test_names_can_be_declared_again(self):
        self.value("const again: number = 1\nagain")
        self.assertEqual(self.value("const again: string = 'two'\nagain"), "'two'")

    def test_an_import_serves_later_cells(self):
        self.assertEqual(self.kernel.run("import fs, { type Stats } from 'node:fs'").status, "ok")
        self.assertEqual(self.value("typeof fs.readFileSync"), "'function'")

    def test_types_are_not_checked(self):
        self.assertEqual(self.value("const wrong: number = 'text'\nwrong"), "'text'")

    def test_without_a_compiler_it_says_what_is_missing(self):
        command = [*COMMANDS["typescript"][:-1], "/nosuch/tsc"]
        with mock.patch.dict(driver.COMMANDS, typescript=command):
            kernel = self.new_kernel()
        outcome = kernel.run("const n: number = 1\nn")
        if outcome.status == "ok":
            self.skipTest("this Node takes types out by itself")
        self.assertIn("/nosuch/tsc is not installed", outcome.error["value"])

    def test_the_compiler_is_found_by_its_bare_name(self):
        command = [*COMMANDS["typescript"][:-1], os.path.basename(TSC)]
        with mock.patch.dict(driver.COMMANDS, typescript=command):
            kernel = self.new_kernel(env={"PATH": "%s:%s" % (os.environ["PATH"], os.path.dirname(TSC))})
        self.assertEqual(kernel.run("enum E { A = 7 }\nE.A").value, "7")


class Nonce(TypeScriptTest, NonceContract):
    transport = "nonce"

    def test_types_are_taken_out(self):
        self.assertEqual(self.value("const n: number = 3\nn + 1"), "4")


if __name__ == "__main__":
    unittest.main()
