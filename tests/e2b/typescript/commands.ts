// Commands in the foreground and background, standard input, terminals.

import assert from 'node:assert/strict'

import { CommandExitError, InvalidArgumentError, NotFoundError, AuthenticationError, TimeoutError } from 'e2b'

import { fresh, rejects, until, type Cases } from './cases.ts'

const bytes = (text: string) => new TextEncoder().encode(text)

export const commands: Cases = {
  async foreground() {
    await fresh(
      async ({ commands, sandboxId }) => {
        const out: string[] = []
        const err: string[] = []
        const result = await commands.run('echo out; echo err >&2; pwd; echo $WHOLE $ONE $E2B_SANDBOX_ID', {
          envs: { ONE: 'command' },
          cwd: '/tmp',
          onStdout: (data) => void out.push(data),
          onStderr: (data) => void err.push(data),
        })
        assert.equal(result.stdout, `out\n/tmp\nsandbox command ${sandboxId}\n`)
        assert.deepEqual([result.stderr, result.exitCode, result.error], ['err\n', 0, undefined])
        assert.deepEqual([out.join(''), err.join('')], [result.stdout, result.stderr])
        assert.equal((await commands.run('pwd; whoami')).stdout, '/home/user\nuser\n')
        const many = await commands.run(`printf 'ü%.0s' $(seq 50000)`)
        assert.equal(many.stdout, 'ü'.repeat(50_000))
        const error = await rejects(CommandExitError, commands.run('echo bad; exit 3'))
        assert.deepEqual([error.exitCode, error.stdout, error.error], [3, 'bad\n', 'exit status 3'])
        await rejects(TimeoutError, commands.run('sleep 20', { timeoutMs: 1000 }))
        await rejects(InvalidArgumentError, commands.run('true', { cwd: '/no/such/folder' }))
        await rejects(AuthenticationError, commands.run('true', { user: 'nobody' }))
      },
      { envs: { WHOLE: 'sandbox' } },
    )
  },

  async background_and_stdin() {
    await fresh(async ({ commands }) => {
      const handle = await commands.run('cat; echo over', { background: true, stdin: true })
      const listed = (await commands.list()).find((one) => one.pid === handle.pid)
      assert.deepEqual([listed?.cmd, listed?.args.at(-1)], ['/bin/bash', 'cat; echo over'])
      await commands.sendStdin(handle.pid, 'one\n')
      await commands.sendStdin(handle.pid, bytes('two\n'))
      await commands.closeStdin(handle.pid)
      assert.equal((await handle.wait()).stdout, 'one\ntwo\nover\n')
      assert.ok(!(await commands.list()).some((one) => one.pid === handle.pid))

      const sleeper = await commands.run('sleep 100', { background: true })
      assert.equal(await commands.kill(sleeper.pid), true)
      const killed = await rejects(CommandExitError, sleeper.wait())
      assert.deepEqual([killed.exitCode, killed.error], [-1, 'signal: killed'])
      assert.equal(await commands.kill(sleeper.pid), false)
      await rejects(NotFoundError, commands.connect(7))
      await rejects(NotFoundError, commands.sendStdin(7, 'x'))
    })
  },

  async reconnect_to_a_command() {
    await fresh(async ({ commands }) => {
      let seen = ''
      const handle = await commands.run('echo first; read line; echo got $line', {
        background: true,
        stdin: true,
        onStdout: (data) => void (seen += data),
      })
      await until(() => seen === 'first\n')
      await handle.disconnect()
      const again = await commands.connect(handle.pid)
      await commands.sendStdin(handle.pid, 'it\n')
      assert.equal((await again.wait()).stdout, 'got it\n')
    })
  },

  async terminal() {
    await fresh(async ({ pty }) => {
      let seen = ''
      const onData = (data: Uint8Array) => void (seen += Buffer.from(data))
      const handle = await pty.create({ cols: 80, rows: 24, envs: { FOO: 'bar' }, cwd: '/tmp', onData })
      await pty.resize(handle.pid, { cols: 100, rows: 30 })
      await pty.sendInput(handle.pid, bytes('stty size; echo $FOO $TERM; pwd; exit 0\n'))
      assert.equal((await handle.wait()).exitCode, 0)
      for (const wanted of [/30 100/, /bar xterm-256color/, /\/tmp/]) assert.match(seen, wanted)

      const other = await pty.create({ cols: 80, rows: 24, onData: () => {} })
      await other.disconnect()
      let later = ''
      const again = await pty.connect(other.pid, { onData: (data) => void (later += Buffer.from(data)) })
      await pty.sendInput(other.pid, bytes('echo $((40 + 2))\n'))
      await until(() => later.includes('42'))
      assert.equal(await pty.kill(again.pid), true)
      assert.equal(await pty.kill(again.pid), false)
    })
  },
}
