// Who does not get in, and what is not given.

import assert from 'node:assert/strict'

import { AuthenticationError, CommandExitError, RateLimitError, Sandbox, SandboxError, SandboxNotFoundError } from 'e2b'

import { fresh, otherKey, rejects, until, type Cases } from './cases.ts'

const base = process.env.E2B_SANDBOX_URL ?? ''

export const walls: Cases = {
  async another_tenant_sees_nothing() {
    await fresh(async (sandbox) => {
      const other = { apiKey: otherKey }
      const id = sandbox.sandboxId
      await rejects(SandboxNotFoundError, Sandbox.connect(id, other))
      await rejects(SandboxNotFoundError, Sandbox.getInfo(id, other))
      await rejects(SandboxNotFoundError, Sandbox.setTimeout(id, 10_000, other))
      await rejects(SandboxNotFoundError, Sandbox.pause(id, other))
      assert.equal(await Sandbox.kill(id, other), false)
      await rejects(AuthenticationError, Sandbox.create({ apiKey: `e2b_${'0'.repeat(40)}` }))
      await rejects(SandboxError, Sandbox.create('no-such-template'))
      assert.equal(await sandbox.isRunning(), true)
    })
  },

  async a_full_quota_is_not_tried_again() {
    const made: Sandbox[] = []
    try {
      for (let n = 0; n < 8; n++) made.push(await Sandbox.create({ apiKey: otherKey, timeoutMs: 60_000 }))
      const began = Date.now()
      await rejects(RateLimitError, Sandbox.create({ apiKey: otherKey, timeoutMs: 60_000 }))
      assert.ok(Date.now() - began < 2000)
    } finally {
      await Promise.all(made.map((one) => one.kill()))
    }
  },

  async ports() {
    await fresh(async (sandbox) => {
      await sandbox.files.write('www/index.html', 'from inside')
      await sandbox.commands.run('cd www && /usr/bin/python3 -m http.server 8000', { background: true })
      const headers = { 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': '8000' }
      const answer = await until(async () => {
        const answer = await fetch(`${base}/index.html`, { headers })
        return answer.ok ? answer.text() : undefined
      })
      assert.equal(answer, 'from inside')
      assert.equal(sandbox.getHost(8000), `8000-${sandbox.sandboxId}.localhost:${new URL(base).port}`)
    })
  },

  async private_ports() {
    await fresh(
      async (sandbox) => {
        await sandbox.commands.run('/usr/bin/python3 -m http.server 8000', { background: true })
        const headers = { 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': '8000' }
        assert.equal((await fetch(base, { headers })).status, 403)
        const token = sandbox.trafficAccessToken
        assert.ok(token)
        await until(async () => (await fetch(base, { headers: { ...headers, 'E2B-Traffic-Access-Token': token } })).ok)
      },
      { network: { allowPublicTraffic: false } },
    )
  },

  async single_addresses_can_be_denied() {
    const asked = (address: string) =>
      `exec 3<>/dev/tcp/${address}/80; printf 'GET / HTTP/1.1\\r\\nHost: ${address}\\r\\n\\r\\n' >&3; cat <&3`
    await fresh(
      async ({ commands }) => {
        assert.match((await commands.run(asked('8.8.8.8'))).stdout, /policy does not allow/)
        assert.match((await commands.run(asked('192.0.2.1'))).stdout, /not a public address/)
      },
      { network: { denyOut: ['8.8.8.8'] } },
    )
  },

  async the_internet_can_be_refused() {
    await fresh(
      async ({ commands }) => {
        await rejects(CommandExitError, commands.run('exec 3<>/dev/tcp/192.0.2.1/80'))
      },
      { allowInternetAccess: false },
    )
  },
}
