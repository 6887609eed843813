// The official SDKs `e2b` and `@e2b/code-interpreter` for TypeScript: all cases, or those that are named.

import { run } from './cases.ts'
import { code } from './code.ts'
import { commands } from './commands.ts'
import { files } from './files.ts'
import { sandboxes } from './sandboxes.ts'
import { walls } from './walls.ts'

const failed = await run({ ...sandboxes, ...commands, ...files, ...walls, ...code }, process.argv.slice(2))
// Streams that the SDK keeps open would hold the program.
process.exit(failed === 0 ? 0 : 1)
