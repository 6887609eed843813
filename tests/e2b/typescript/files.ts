// Files: reading, writing, folders, watching, signed addresses.

import assert from 'node:assert/strict'

import {
  AuthenticationError,
  FileNotFoundError,
  FilesystemEventType,
  FileType,
  InvalidArgumentError,
  type FilesystemEvent,
} from 'e2b'

import { fresh, rejects, until, type Cases } from './cases.ts'

const everyByte = Uint8Array.from({ length: 256 * 4000 }, (_, n) => n % 256)

export const files: Cases = {
  async read_and_write() {
    await fresh(async ({ files }) => {
      const info = await files.write('a.txt', 'hello ü')
      assert.deepEqual([info.path, info.name], ['/home/user/a.txt', 'a.txt'])
      for (const path of ['a.txt', '/home/user/a.txt', '~/a.txt']) assert.equal(await files.read(path), 'hello ü')
      assert.deepEqual(await files.read('a.txt', { format: 'bytes' }), new TextEncoder().encode('hello ü'))

      await files.write('deep/er/b.bin', new Blob([everyByte]))
      assert.deepEqual(await files.read('deep/er/b.bin', { format: 'bytes' }), everyByte)
      const blob = await files.read('deep/er/b.bin', { format: 'blob' })
      assert.deepEqual(new Uint8Array(await blob.arrayBuffer()), everyByte)
      const stream = await files.read('deep/er/b.bin', { format: 'stream' })
      assert.deepEqual(new Uint8Array(await new Response(stream).arrayBuffer()), everyByte)

      await files.write('stream.txt', new Blob(['streamed']).stream())
      assert.equal(await files.read('stream.txt'), 'streamed')
      const written = await files.write([
        { path: '/tmp/x/1', data: '1' },
        { path: '2', data: new Blob(['two']) },
      ])
      assert.deepEqual(
        written.map((one) => one.path),
        ['/tmp/x/1', '/home/user/2'],
      )
      assert.deepEqual([await files.read('/tmp/x/1'), await files.read('2')], ['1', 'two'])
      await rejects(FileNotFoundError, files.read('none'))
      await rejects(InvalidArgumentError, files.read('deep'))
      await rejects(AuthenticationError, files.read('a.txt', { user: 'nobody' }))
    })
  },

  async folders() {
    await fresh(async ({ commands, files }) => {
      await files.write('a.txt', '12345678')
      assert.deepEqual([await files.exists('a.txt'), await files.exists('none')], [true, false])
      const entry = await files.getInfo('a.txt')
      assert.deepEqual([entry.type, entry.size, entry.permissions], [FileType.FILE, 8, '-rw-r--r--'])
      assert.deepEqual([entry.owner, entry.group, entry.mode], ['user', 'user', 0o644])
      assert.deepEqual([await files.makeDir('d/e'), await files.makeDir('d/e')], [true, false])
      await files.write('d/e/deep.txt', '')
      const listed = await files.list('d', { depth: 2 })
      assert.deepEqual(
        listed.map((one) => [one.path, one.type]),
        [
          ['/home/user/d/e', FileType.DIR],
          ['/home/user/d/e/deep.txt', FileType.FILE],
        ],
      )
      await commands.run('ln -s d link')
      assert.equal((await files.getInfo('link')).symlinkTarget, '/home/user/d')
      assert.equal((await files.rename('a.txt', 'moved/a.txt')).path, '/home/user/moved/a.txt')
      await files.remove('moved')
      assert.equal(await files.exists('moved'), false)
      await rejects(FileNotFoundError, files.list('none'))
      await rejects(FileNotFoundError, files.getInfo('none'))
      await rejects(FileNotFoundError, files.rename('none', 'other'))
      await rejects(InvalidArgumentError, files.list('d/e/deep.txt'))
    })
  },

  async watch() {
    await fresh(async ({ commands, files }) => {
      await files.makeDir('w/below')
      const seen: FilesystemEvent[] = []
      const handle = await files.watchDir('w', (event) => void seen.push(event), { recursive: true })
      await files.write('w/below/new.txt', 'x')
      await commands.run('echo 1 > w/a; echo 2 >> w/a; mv w/a w/b; rm w/b')
      const saw = (name: string, type: FilesystemEventType) =>
        seen.some((event) => event.name.endsWith(name) && event.type === type)
      await until(() => saw('b', FilesystemEventType.REMOVE))
      assert.ok(saw('a', FilesystemEventType.CREATE) && saw('a', FilesystemEventType.WRITE))
      assert.ok(saw('a', FilesystemEventType.RENAME))
      assert.ok(seen.some((event) => event.name === 'below/new.txt'))
      await handle.stop()
      await rejects(
        FileNotFoundError,
        files.watchDir('none', () => {}),
      )
    })
  },

  async metadata() {
    await fresh(async ({ files }) => {
      const metadata = { author: 'Ada L.', purpose: 'upload' }
      assert.deepEqual((await files.write('d/m.txt', 'x', { metadata })).metadata, metadata)
      assert.deepEqual((await files.getInfo('d/m.txt')).metadata, metadata)
      assert.deepEqual((await files.list('d'))[0]?.metadata, metadata)
      assert.equal((await files.write('d/m.txt', 'again')).metadata, undefined)
      assert.equal((await files.getInfo('d/m.txt')).metadata, undefined)
      await rejects(InvalidArgumentError, files.write('m.txt', 'x', { metadata: { k: 'x'.repeat(5000) } }))
    })
  },

  async watched_entries() {
    await fresh(async ({ files }) => {
      await files.makeDir('w')
      const seen: FilesystemEvent[] = []
      const handle = await files.watchDir('w', (event) => void seen.push(event), {
        includeEntry: true,
        allowNetworkMounts: true,
      })
      await files.write('w/a', '12345')
      await until(() => seen.length >= 3)
      const { CREATE, CHMOD, WRITE } = FilesystemEventType
      assert.deepEqual(
        seen.map(({ name, type, entry }) => [name, type, entry?.path, entry?.size]),
        [CREATE, CHMOD, WRITE].map((type) => ['a', type, '/home/user/w/a', 5]),
      )
      await handle.stop()
    })
  },

  async root() {
    await fresh(async ({ commands, files }) => {
      assert.equal((await commands.run('whoami; pwd', { user: 'root' })).stdout, 'root\n/root\n')
      assert.equal((await files.write('a.txt', 'x', { user: 'root' })).path, '/root/a.txt')
      assert.equal((await files.getInfo('a.txt', { user: 'root' })).owner, 'root')
      await assert.rejects(files.read('/root/a.txt'))
    })
  },

  async signed_urls() {
    await fresh(async (sandbox) => {
      await sandbox.files.write('a b.txt', 'signed')
      const url = await sandbox.downloadUrl('a b.txt', { useSignatureExpiration: 60_000 })
      assert.equal(await (await fetch(url)).text(), 'signed')
      assert.equal(await (await fetch(await sandbox.downloadUrl('a b.txt'))).text(), 'signed')
      const form = new FormData()
      form.append('file', new Blob(['uploaded']), 'up.txt')
      const sent = await fetch(await sandbox.uploadUrl('up.txt'), { method: 'POST', body: form })
      assert.equal(sent.status, 200)
      assert.equal(await sandbox.files.read('up.txt'), 'uploaded')
      for (const forged of [url.replace('v1_', 'v1_x'), url.replace(/a(%20|\+)b\.txt/, 'up.txt')]) {
        assert.notEqual(forged, url)
        const refused = await fetch(forged)
        assert.equal(refused.status, 401)
        assert.match(await refused.text(), /invalid signature/)
      }
    })
  },
}
