// What every case needs: a sandbox of its own, an error of the right class, and time for what comes by itself.

import assert from 'node:assert/strict'

import { Sandbox, type SandboxOpts } from 'e2b'
import { Sandbox as Interpreter } from '@e2b/code-interpreter'

export type Case = () => Promise<void>
export type Cases = Record<string, Case>

/** Another tenant of the same server. */
export const otherKey = process.env.OTHER_E2B_API_KEY

export async function fresh(use: (sandbox: Sandbox) => Promise<void>, opts: SandboxOpts = {}): Promise<void> {
  const sandbox = await Sandbox.create({ timeoutMs: 120_000, ...opts })
  try {
    await use(sandbox)
  } finally {
    await sandbox.kill()
  }
}

export async function freshInterpreter(
  use: (sandbox: Interpreter) => Promise<void>,
  opts: SandboxOpts = {},
): Promise<void> {
  const sandbox = await Interpreter.create({ timeoutMs: 300_000, ...opts })
  try {
    await use(sandbox)
  } finally {
    await sandbox.kill()
  }
}

/** The error of exactly this class that a promise ends with. */
export async function rejects<E extends Error>(
  kind: new (...args: never[]) => E,
  promise: Promise<unknown>,
): Promise<E> {
  const error = await promise.then(
    () => assert.fail(`wanted ${kind.name}, and nothing was thrown`),
    (error: unknown) => error,
  )
  if (!(error instanceof kind) || error.constructor !== kind) {
    assert.fail(`wanted ${kind.name}, got ${error?.constructor?.name}: ${error}`)
  }
  return error
}

export function pause(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds))
}

/** Waits for something that comes about by itself. */
export async function until<T>(holds: () => T | Promise<T>, seconds = 15): Promise<NonNullable<T>> {
  const end = Date.now() + seconds * 1000
  for (;;) {
    const value = await holds()
    if (value) return value
    assert.ok(Date.now() < end, `${holds} did not come about in ${seconds} s`)
    await pause(100)
  }
}

/** Runs one after the other, prints how each ended, and says how many failed. */
export async function run(cases: Cases, wanted: string[]): Promise<number> {
  const chosen = Object.entries(cases).filter(([name]) => wanted.length === 0 || wanted.includes(name))
  assert.ok(chosen.length > 0, `there is none of ${wanted}`)
  const failed: string[] = []
  for (const [name, body] of chosen) {
    const began = Date.now()
    try {
      await body()
      console.log(`ok ${name} (${((Date.now() - began) / 1000).toFixed(2)} s)`)
    } catch (error) {
      failed.push(name)
      console.log(`FAILED ${name}`)
      console.error(error)
    }
  }
  if (failed.length > 0) console.log(`${failed.length} of ${chosen.length} cases failed: ${failed.join(', ')}`)
  else console.log(`${chosen.length} cases passed`)
  return failed.length
}
