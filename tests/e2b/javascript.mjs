// The official SDKs `e2b` and `@e2b/code-interpreter` for JavaScript: sandboxes, commands, terminals, files, code.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'

import {
  AuthenticationError,
  CommandExitError,
  FilesystemEventType,
  FileType,
  NotFoundError,
  RateLimitError,
  Sandbox,
  SandboxError,
  SandboxNotFoundError,
  TimeoutError,
} from 'e2b'
import { Sandbox as Interpreter } from '@e2b/code-interpreter'

const otherKey = process.env.OTHER_E2B_API_KEY

async function fresh(use, opts = {}, kind = Sandbox) {
  const sandbox = await kind.create({ timeoutMs: 120_000, ...opts })
  try {
    await use(sandbox)
  } finally {
    await sandbox.kill()
  }
}

async function rejects(kind, promise) {
  try {
    await promise
  } catch (error) {
    assert.ok(error instanceof kind, `wanted ${kind.name}, got ${error?.constructor?.name}: ${error?.message}`)
    return error
  }
  assert.fail(`wanted ${kind.name}, and nothing was thrown`)
}

async function until(holds, seconds = 15) {
  const end = Date.now() + seconds * 1000
  for (;;) {
    const value = await holds()
    if (value) return value
    assert.ok(Date.now() < end, `${holds} did not come about`)
    await new Promise((resolve) => setTimeout(resolve, 100))
  }
}

const cases = {
  async life() {
    const sandbox = await Sandbox.create({ timeoutMs: 60_000, metadata: { a: 'b c' } })
    assert.equal(sandbox.sandboxId.length, 26)
    assert.equal(await sandbox.isRunning(), true)
    const info = await sandbox.getInfo()
    assert.deepEqual(info.metadata, { a: 'b c' })
    assert.equal(info.state, 'running')
    await sandbox.setTimeout(300_000)
    assert.equal(await sandbox.pause(), true)
    assert.equal(await sandbox.pause(), false)
    assert.equal((await sandbox.getInfo()).state, 'paused')
    const again = await Sandbox.connect(sandbox.sandboxId)
    assert.equal((await again.commands.run('echo awake')).stdout, 'awake\n')
    assert.equal(await sandbox.kill(), true)
    assert.equal(await Sandbox.kill(sandbox.sandboxId), false)
    assert.equal(await sandbox.isRunning(), false)
    await rejects(SandboxNotFoundError, sandbox.getInfo())
    await rejects(SandboxNotFoundError, sandbox.commands.run('true'))
    await rejects(TimeoutError, sandbox.files.read('a'))
  },

  async commands() {
    await fresh(async ({ commands }) => {
      const heard = []
      const result = await commands.run('echo out; echo err >&2; pwd; echo $ONE', {
        envs: { ONE: '1' },
        cwd: '/tmp',
        onStdout: (data) => heard.push(data),
      })
      assert.equal(result.stdout, 'out\n/tmp\n1\n')
      assert.equal(result.stderr, 'err\n')
      assert.equal(heard.join(''), result.stdout)
      const error = await rejects(CommandExitError, commands.run('exit 3'))
      assert.equal(error.exitCode, 3)
      await rejects(TimeoutError, commands.run('sleep 20', { timeoutMs: 1000 }))

      const handle = await commands.run('cat', { background: true, stdin: true })
      assert.ok((await commands.list()).some((one) => one.pid === handle.pid))
      await commands.sendStdin(handle.pid, 'hello\n')
      await commands.closeStdin(handle.pid)
      assert.equal((await handle.wait()).stdout, 'hello\n')

      const sleeper = await commands.run('sleep 100', { background: true })
      assert.equal(await commands.kill(sleeper.pid), true)
      assert.equal((await rejects(CommandExitError, sleeper.wait())).exitCode, -1)
      assert.equal(await commands.kill(sleeper.pid), false)
      await rejects(NotFoundError, commands.connect(7))
    })
  },

  async terminal() {
    await fresh(async ({ pty }) => {
      let seen = ''
      const handle = await pty.create({ cols: 80, rows: 24, onData: (data) => (seen += Buffer.from(data)) })
      await pty.resize(handle.pid, { cols: 100, rows: 30 })
      await pty.sendInput(handle.pid, new TextEncoder().encode('stty size; exit 0\n'))
      assert.equal((await handle.wait()).exitCode, 0)
      assert.match(seen, /30 100/)
    })
  },

  async files() {
    await fresh(async ({ files }) => {
      assert.equal((await files.write('a.txt', 'hello ü')).path, '/home/user/a.txt')
      assert.equal(await files.read('a.txt'), 'hello ü')
      assert.deepEqual(await files.read('a.txt', { format: 'bytes' }), new TextEncoder().encode('hello ü'))
      const written = await files.write([
        { path: '/tmp/x/1', data: '1' },
        { path: '2', data: new Blob(['two']) },
      ])
      assert.deepEqual(
        written.map((one) => one.path),
        ['/tmp/x/1', '/home/user/2'],
      )
      assert.equal(await files.read('2'), 'two')
      assert.equal(await files.exists('a.txt'), true)
      assert.equal(await files.exists('none'), false)
      const info = await files.getInfo('a.txt')
      assert.equal(info.type, FileType.FILE)
      assert.equal(info.size, 8)
      assert.equal(await files.makeDir('d/e'), true)
      assert.equal(await files.makeDir('d/e'), false)
      assert.deepEqual(
        (await files.list('d')).map((one) => one.name),
        ['e'],
      )
      await files.rename('a.txt', 'd/b.txt')
      await files.remove('d')
      assert.equal(await files.exists('d'), false)
      await rejects(NotFoundError, files.read('none'))
      await rejects(NotFoundError, files.list('none'))
    })
  },

  async watch() {
    await fresh(async ({ files }) => {
      await files.makeDir('w')
      const events = []
      const handle = await files.watchDir('w', (event) => events.push(event))
      await files.write('w/a.txt', 'x')
      await until(() => events.some((event) => event.name === 'a.txt'))
      const known = [FilesystemEventType.CREATE, FilesystemEventType.WRITE, FilesystemEventType.RENAME]
      assert.ok(events.some((event) => known.includes(event.type)))
      await handle.stop()
    })
  },

  async signedUrls() {
    await fresh(async (sandbox) => {
      await sandbox.files.write('a.txt', 'signed')
      const url = await sandbox.downloadUrl('a.txt', { useSignatureExpiration: 60_000 })
      assert.equal(await (await fetch(url)).text(), 'signed')
      const form = new FormData()
      form.append('file', new Blob(['uploaded']), 'up.txt')
      const sent = await fetch(await sandbox.uploadUrl('up.txt'), { method: 'POST', body: form })
      assert.equal(sent.status, 200)
      assert.equal(await sandbox.files.read('up.txt'), 'uploaded')
      const forged = await fetch(url.replace('v1_', 'v1_x'))
      assert.equal(forged.status, 401)
      assert.match((await forged.json()).message, /invalid signature/)
    })
  },

  async listing() {
    const mark = randomUUID()
    await fresh(
      async (one) => {
        await fresh(
          async (two) => {
            const pages = Sandbox.list({ query: { metadata: { mark } }, limit: 1 })
            const seen = []
            while (pages.hasNext) seen.push(...(await pages.nextItems()).map((info) => info.sandboxId))
            assert.deepEqual(seen, [two.sandboxId, one.sandboxId])
            const none = Sandbox.list({ query: { metadata: { mark } }, apiKey: otherKey })
            assert.deepEqual(await none.nextItems(), [])
          },
          { metadata: { mark } },
        )
      },
      { metadata: { mark, odd: 'a=b&c d' } },
    )
  },

  async metrics() {
    await fresh(async (sandbox) => {
      const metrics = await until(async () => {
        const found = await sandbox.getMetrics()
        return found.length > 0 && found
      }, 30)
      assert.ok(metrics[0].memTotal > 0)
    })
  },

  async walls() {
    await fresh(async (sandbox) => {
      const other = { apiKey: otherKey }
      await rejects(SandboxNotFoundError, Sandbox.connect(sandbox.sandboxId, other))
      await rejects(SandboxNotFoundError, Sandbox.getInfo(sandbox.sandboxId, other))
      assert.equal(await Sandbox.kill(sandbox.sandboxId, other), false)
      await rejects(AuthenticationError, Sandbox.create({ apiKey: `e2b_${'0'.repeat(40)}` }))
      await rejects(SandboxError, Sandbox.create('no-such-template'))
    })
    const made = []
    const began = Date.now()
    try {
      await rejects(
        RateLimitError,
        (async () => {
          for (let n = 0; n < 9; n++) made.push(await Sandbox.create({ ...{ apiKey: otherKey }, timeoutMs: 60_000 }))
        })(),
      )
      assert.equal(made.length, 8)
      assert.ok(Date.now() - began < 5000, 'a full quota is not tried again')
    } finally {
      await Promise.all(made.map((one) => one.kill()))
    }
  },

  async interpreter() {
    await fresh(
      async (sandbox) => {
        await sandbox.runCode('x = 41')
        assert.equal((await sandbox.runCode('x + 1')).text, '42')
        const out = []
        await sandbox.runCode('print("hi")', { onStdout: (message) => out.push(message.line) })
        assert.equal(out.join(''), 'hi\n')
        const failed = await sandbox.runCode('1 / 0')
        assert.equal(failed.error.name, 'ZeroDivisionError')
        const context = await sandbox.createCodeContext({ cwd: '/tmp' })
        assert.equal((await sandbox.runCode('import os; os.getcwd()', { context })).text, '/tmp')
        assert.equal((await sandbox.listCodeContexts()).length, 2)
        await sandbox.restartCodeContext(context)
        await sandbox.removeCodeContext(context)
        await rejects(NotFoundError, sandbox.runCode('1', { context }))
        assert.equal((await sandbox.runCode('1 + 1', { language: 'js' })).text, '2')
        assert.equal((await sandbox.runCode('echo $A', { language: 'bash', envs: { A: 'b' } })).logs.stdout[0], 'b\n')
        const chart = await sandbox.runCode('import matplotlib.pyplot as plt\nplt.bar(["a"], [2]); plt.show()')
        const result = chart.results.find((one) => one.chart)
        assert.equal(result.chart.type, 'bar')
        assert.ok(result.png.length > 100)
        await rejects(TimeoutError, sandbox.runCode('import time; time.sleep(60)', { timeoutMs: 2000 }))
        assert.equal((await sandbox.runCode('x')).text, '41')
      },
      {},
      Interpreter,
    )
  },
}

const wanted = process.argv.slice(2)
const failed = []
for (const [name, run] of Object.entries(cases)) {
  if (wanted.length > 0 && !wanted.includes(name)) continue
  const began = Date.now()
  try {
    await run()
    console.log(`ok ${name} (${((Date.now() - began) / 1000).toFixed(2)} s)`)
  } catch (error) {
    failed.push(name)
    console.log(`FAILED ${name}`)
    console.error(error)
  }
}
if (failed.length > 0) {
  console.log(`${failed.length} cases failed: ${failed.join(', ')}`)
  process.exit(1)
}
console.log(`${Object.keys(cases).length} cases passed`)
process.exit(0)
