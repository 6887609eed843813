// Sandboxes: life and death, listing, timeouts, pauses, metrics, forks, snapshots.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'

import { Sandbox, SandboxError, SandboxNotFoundError, TimeoutError, type SandboxInfo } from 'e2b'

import { fresh, otherKey, pause, rejects, until, type Cases } from './cases.ts'

async function idsOf(pages: { hasNext: boolean; nextItems(): Promise<SandboxInfo[]> }): Promise<string[]> {
  const seen: string[] = []
  while (pages.hasNext) seen.push(...(await pages.nextItems()).map((info) => info.sandboxId))
  return seen
}

export const sandboxes: Cases = {
  async create_and_kill() {
    const sandbox = await Sandbox.create({ timeoutMs: 60_000 })
    assert.match(sandbox.sandboxId, /^[a-z0-9]{26}$/)
    assert.equal(await sandbox.isRunning(), true)
    assert.equal(await sandbox.kill(), true)
    assert.equal(await sandbox.kill(), false)
    assert.equal(await Sandbox.kill(sandbox.sandboxId), false)
    assert.equal(await sandbox.isRunning(), false)
    await rejects(SandboxNotFoundError, sandbox.getInfo())
    await rejects(SandboxNotFoundError, sandbox.setTimeout(10_000))
    await rejects(SandboxNotFoundError, Sandbox.connect(sandbox.sandboxId))
    await rejects(SandboxNotFoundError, sandbox.commands.run('true'))
    await rejects(TimeoutError, sandbox.files.read('a'))
  },

  async metadata_and_listing() {
    const mark = randomUUID()
    const odd = 'a=b&c d'
    await fresh(
      async (one) => {
        await fresh(
          async (two) => {
            const query = { metadata: { mark } }
            const newest = await idsOf(Sandbox.list({ query, limit: 1 }))
            assert.deepEqual(newest, [two.sandboxId, one.sandboxId])
            assert.deepEqual(await idsOf(Sandbox.list({ query, order: 'asc' })), newest.toReversed())
            assert.deepEqual(await idsOf(Sandbox.list({ query: { metadata: { mark, odd } } })), [one.sandboxId])
            const info = await one.getInfo()
            assert.deepEqual(info.metadata, { mark, odd })
            assert.deepEqual([info.state, info.templateId], ['running', 'base'])
            assert.ok(info.cpuCount >= 1 && info.memoryMB >= 128 && info.endAt > info.startedAt)
            await two.pause()
            const paused = Sandbox.list({ query: { metadata: { mark }, state: ['paused'] } })
            assert.deepEqual(await idsOf(paused), [two.sandboxId])
            assert.deepEqual(await idsOf(Sandbox.list({ query, apiKey: otherKey })), [])
          },
          { metadata: { mark } },
        )
      },
      { metadata: { mark, odd } },
    )
  },

  async timeouts() {
    await fresh(
      async (sandbox) => {
        const before = (await sandbox.getInfo()).endAt
        await sandbox.setTimeout(600_000)
        const after = (await sandbox.getInfo()).endAt
        const added = (after.getTime() - before.getTime()) / 1000
        assert.ok(added > 500 && added < 600, `${added} s were added`)
        // Whoever comes back with less time takes none away.
        await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 5000 })
        assert.deepEqual((await sandbox.getInfo()).endAt, after)
        await rejects(SandboxError, sandbox.setTimeout(10_000_000_000))
        await sandbox.setTimeout(1000)
        await until(async () => !(await sandbox.isRunning()))
        await rejects(SandboxNotFoundError, sandbox.commands.run('true'))
      },
      { timeoutMs: 60_000 },
    )
  },

  async a_sandbox_that_ends_takes_its_commands_along() {
    for (const end of [(one: Sandbox) => one.kill(), (one: Sandbox) => one.setTimeout(0)]) {
      await fresh(async (sandbox) => {
        const command = await sandbox.commands.run('sleep 60', { background: true })
        await end(sandbox)
        const error = await rejects(TimeoutError, command.wait())
        assert.match(error.message, /killed or reached its end of life/)
        assert.equal(await sandbox.isRunning(), false)
      })
    }
  },

  async a_pause_without_memory() {
    const lifecycle = { onTimeout: { action: 'pause' as const, keepMemory: false } }
    await fresh(
      async (sandbox) => {
        await sandbox.files.write('kept.txt', 'kept')
        for (const pauses of [() => sandbox.pause({ keepMemory: false }), () => sandbox.setTimeout(0)]) {
          const command = await sandbox.commands.run('sleep 600', { background: true })
          await pauses()
          await rejects(TimeoutError, command.wait())
          assert.equal((await sandbox.getInfo()).state, 'paused')
          await sandbox.connect()
          assert.equal(await sandbox.files.read('kept.txt'), 'kept')
          assert.deepEqual(await sandbox.commands.list(), [])
        }
      },
      { lifecycle },
    )
  },

  async pause_and_connect() {
    await fresh(async (sandbox) => {
      await sandbox.files.write('kept.txt', 'kept')
      await sandbox.commands.run('sleep 2; echo done > done.txt', { background: true })
      assert.equal(await sandbox.pause(), true)
      assert.equal(await sandbox.pause(), false)
      assert.equal((await sandbox.getInfo()).state, 'paused')
      assert.equal(await sandbox.isRunning(), false)
      await rejects(TimeoutError, sandbox.files.read('kept.txt'))
      await pause(3000)
      const again = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 60_000 })
      assert.equal(again.sandboxId, sandbox.sandboxId)
      assert.equal(await again.files.read('kept.txt'), 'kept')
      assert.equal((await sandbox.getInfo()).state, 'running')
      // What ran when it was paused goes on.
      await until(() => again.files.exists('done.txt'))
    })
  },

  async pause_at_the_end_and_wake_by_traffic() {
    const lifecycle = { onTimeout: 'pause', autoResume: true } as const
    await fresh(
      async (sandbox) => {
        await sandbox.files.write('kept.txt', 'kept')
        await until(async () => (await sandbox.getInfo()).state === 'paused')
        assert.equal(await sandbox.files.read('kept.txt'), 'kept')
      },
      { timeoutMs: 2000, lifecycle },
    )
  },

  async metrics() {
    await fresh(async (sandbox) => {
      await sandbox.commands.run('head -c 3000000 /dev/zero > zeros')
      const last = await until(async () => (await sandbox.getMetrics()).at(-1), 30)
      assert.ok(last.cpuCount >= 1 && last.cpuUsedPct >= 0)
      assert.ok(last.memTotal > last.memUsed && last.memUsed > 0)
      assert.ok(last.diskTotal > last.diskUsed && last.diskUsed >= 3_000_000)
      assert.ok(last.timestamp instanceof Date)
    })
  },

  async fork() {
    await fresh(async (sandbox) => {
      await sandbox.files.write('kept.txt', 'kept')
      const forks = await sandbox.fork({ timeoutMs: 60_000, count: 2 })
      const made = forks.filter((fork) => fork instanceof Sandbox)
      try {
        assert.equal(made.length, 2, `${forks}`)
        assert.equal(new Set([sandbox, ...made].map((one) => one.sandboxId)).size, 3)
        for (const fork of made) assert.equal(await fork.files.read('kept.txt'), 'kept')
      } finally {
        await Promise.all(made.map((fork) => fork.kill()))
      }
    })
  },

  async snapshots() {
    await fresh(async (sandbox) => {
      await sandbox.files.write('kept.txt', 'then')
      const snapshot = await sandbox.createSnapshot()
      try {
        await sandbox.files.write('kept.txt', 'now')
        const started = await Sandbox.create(snapshot.snapshotId, { timeoutMs: 60_000 })
        try {
          assert.equal(await started.files.read('kept.txt'), 'then')
          assert.equal((await started.getInfo()).templateId, snapshot.snapshotId)
        } finally {
          await started.kill()
        }
        const pages = Sandbox.listSnapshots({ sandboxId: sandbox.sandboxId })
        assert.deepEqual((await pages.nextItems()).map((one) => one.snapshotId), [snapshot.snapshotId])
        assert.deepEqual(await Sandbox.listSnapshots({ apiKey: otherKey }).nextItems(), [])
        await rejects(SandboxError, Sandbox.create(snapshot.snapshotId, { apiKey: otherKey }))
        assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId, { apiKey: otherKey }), false)
      } finally {
        assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), true)
      }
      assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), false)
      await rejects(SandboxError, Sandbox.create(snapshot.snapshotId))
      const name = `golden-${randomUUID()}`
      const named = await sandbox.createSnapshot({ name })
      assert.deepEqual(named.names, [name])
      const again = await Sandbox.create(name, { timeoutMs: 60_000 })
      assert.equal(await again.files.read('kept.txt'), 'now')
      await again.kill()
      assert.equal(await Sandbox.deleteSnapshot(name), true)
    })
  },
}
