// The code interpreter: cells, contexts, results, charts, languages, errors.

import assert from 'node:assert/strict'

import { NotFoundError, TimeoutError } from 'e2b'
import { Sandbox, type BarChart, type BoxAndWhiskerChart, type ChartTypes, type LineChart, type PieChart } from '@e2b/code-interpreter'

import { freshInterpreter, rejects, type Cases } from './cases.ts'

async function chart<T extends ChartTypes>(sandbox: Sandbox, code: string): Promise<T> {
  const execution = await sandbox.runCode(`import matplotlib.pyplot as plt\n${code}\nplt.show()`)
  assert.equal(execution.error, undefined)
  const result = execution.results.find((one) => one.chart)
  assert.ok(result?.png && result.png.length > 100)
  return result.chart as T
}

export const code: Cases = {
  async cells_keep_their_names() {
    await freshInterpreter(async (sandbox) => {
      assert.equal((await sandbox.getInfo()).templateId, 'code-interpreter-v1')
      const first = await sandbox.runCode('x = 41')
      assert.deepEqual([first.executionCount, first.results, first.error], [1, [], undefined])
      const second = await sandbox.runCode('x += 1; x')
      assert.deepEqual([second.text, second.executionCount, second.results[0]?.isMainResult], ['42', 2, true])
      await sandbox.files.write('data.txt', 'from a file')
      assert.equal((await sandbox.runCode(`open('data.txt').read()`)).text, 'from a file')
    })
  },

  async output_and_callbacks() {
    await freshInterpreter(async (sandbox) => {
      const out: string[] = []
      const err: string[] = []
      const results: (string | undefined)[] = []
      const execution = await sandbox.runCode(`import sys\nprint('out')\nprint('err', file=sys.stderr)\n7`, {
        onStdout: (message) => void out.push(message.line),
        onStderr: (message) => void err.push(message.line),
        onResult: (result) => void results.push(result.text),
      })
      assert.deepEqual([out.join(''), err.join(''), results], ['out\n', 'err\n', ['7']])
      assert.deepEqual([execution.logs.stdout.join(''), execution.logs.stderr.join('')], ['out\n', 'err\n'])
    })
  },

  async errors() {
    await freshInterpreter(async (sandbox) => {
      const heard: string[] = []
      const { error } = await sandbox.runCode('def f():\n    return 1 / 0\nf()', {
        onError: (error) => void heard.push(error.name),
      })
      assert.deepEqual([error?.name, error?.value, heard], ['ZeroDivisionError', 'division by zero', ['ZeroDivisionError']])
      assert.match(error?.traceback ?? '', /return 1 \/ 0/)
      assert.equal((await sandbox.runCode('syntax error here')).error?.name, 'SyntaxError')
      await rejects(TimeoutError, sandbox.runCode('import time; time.sleep(60)', { timeoutMs: 2000 }))
      // The interpreter is free again, and knows what it knew.
      assert.equal((await sandbox.runCode('f.__name__')).text, 'f')
    })
  },

  async contexts() {
    await freshInterpreter(async (sandbox) => {
      const context = await sandbox.createCodeContext({ cwd: '/tmp' })
      assert.deepEqual([context.language, context.cwd], ['python', '/tmp'])
      await sandbox.runCode(`where = 'context'`, { context })
      assert.equal((await sandbox.runCode('where', { context })).text, 'context')
      assert.equal((await sandbox.runCode('import os; os.getcwd()', { context })).text, '/tmp')
      assert.equal((await sandbox.runCode('where')).error?.name, 'NameError')
      const listed = (await sandbox.listCodeContexts()).map((one) => one.id)
      assert.ok(listed.includes(context.id) && listed.length === 2)
      await sandbox.restartCodeContext(context)
      assert.equal((await sandbox.runCode('where', { context })).error?.name, 'NameError')
      await sandbox.removeCodeContext(context)
      await rejects(NotFoundError, sandbox.runCode('1', { context }))
    })
  },

  async variables_of_one_execution() {
    await freshInterpreter(
      async (sandbox) => {
        const read = `import os; (os.environ.get('WHOLE'), os.environ.get('ONE'))`
        assert.equal((await sandbox.runCode(read, { envs: { ONE: '1' } })).text, `('sandbox', '1')`)
        assert.equal((await sandbox.runCode(read)).text, `('sandbox', None)`)
      },
      { envs: { WHOLE: 'sandbox' } },
    )
  },

  async results_by_type() {
    await freshInterpreter(async (sandbox) => {
      const rich = await sandbox.runCode(
        `class Rich:\n    def _repr_html_(self): return '<b>1</b>'\n    def _repr_markdown_(self): return '**1**'\n` +
          `    def _repr_png_(self): return b'png'\n    def __repr__(self): return 'plain'\nRich()`,
      )
      const [result] = rich.results
      assert.deepEqual([result?.text, result?.html, result?.markdown, result?.png], ['plain', '<b>1</b>', '**1**', 'cG5n'])
      const table = await sandbox.runCode(`import pandas as pd\npd.DataFrame({'a': [1, 2], 'b': ['x', 'y']})`)
      assert.deepEqual(table.results[0]?.data, { a: [1, 2], b: ['x', 'y'] })
    })
  },

  async charts() {
    await freshInterpreter(async (sandbox) => {
      const line = await chart<LineChart>(sandbox, `plt.plot([1, 2, 3], [1, 4, 9], label='squares'); plt.xlabel('Time (s)')`)
      assert.deepEqual([line.type, line.x_unit, line.elements[0]?.label], ['line', 's', 'squares'])
      assert.deepEqual(line.elements[0]?.points, [[1, 1], [2, 4], [3, 9]])
      const bars = await chart<BarChart>(sandbox, `plt.bar(['a', 'b'], [3, 5])`)
      assert.deepEqual([bars.type, ...bars.elements.map((bar) => bar.label)], ['bar', 'a', 'b'])
      const pie = await chart<PieChart>(sandbox, `plt.pie([1, 3], labels=['x', 'y'])`)
      assert.deepEqual(pie.elements.map((part) => Math.round(part.angle)), [90, 270])
      const box = await chart<BoxAndWhiskerChart>(sandbox, `plt.boxplot([[1, 2, 3, 4, 5, 40]])`)
      assert.deepEqual([box.type, box.elements[0]?.median, box.elements[0]?.outliers], ['box_and_whisker', 3.5, [40]])
      assert.equal((await chart(sandbox, `plt.scatter([1, 2], [3, 4])`)).type, 'scatter')
    })
  },

  async languages() {
    await freshInterpreter(async (sandbox) => {
      await sandbox.runCode('let kept = 20', { language: 'js' })
      assert.equal((await sandbox.runCode('kept + 1', { language: 'javascript' })).text, '21')
      const says = async (language: string, code: string) =>
        (await sandbox.runCode(code, { language })).logs.stdout.join('')
      assert.equal(await says('ts', 'const n: number = 3; console.log(n)'), '3\n')
      assert.equal(await says('bash', 'echo from bash'), 'from bash\n')
      assert.match(await says('r', 'print(1 + 2)'), /3/)
      const java = 'public class Main { public static void main(String[] a) { System.out.println("java"); } }'
      assert.equal(await says('java', java), 'java\n')
    })
  },

  async after_a_pause() {
    await freshInterpreter(async (sandbox) => {
      await sandbox.runCode('x = 5')
      await sandbox.pause()
      const again = await Sandbox.connect(sandbox.sandboxId)
      assert.equal((await again.runCode('x')).text, '5')
    })
  },
}
