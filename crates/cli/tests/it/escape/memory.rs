//! What a program finds in its own memory.

use super::unique;
use crate::support::{Who, sandstorm, stderr, stdout};

/// Looks through everything that this process has mapped for a text that it only knows backwards.
const LOOK: &str = r"
import sys
wanted = sys.argv[1][::-1].encode()
found = looked = 0
with open('/proc/self/maps') as maps, open('/proc/self/mem', 'rb', 0) as memory:
    for line in maps:
        span, rights = line.split()[:2]
        if 'r' not in rights or '[v' in line: continue
        start, end = (int(part, 16) for part in span.split('-'))
        memory.seek(start)
        try: content = memory.read(end - start)
        except OSError: continue
        looked += len(content)
        # The text itself comes to be when it is turned round: once as text, once as bytes.
        found += content.count(b'MARK' + wanted)
print(looked > 1000000, found)
";

/// The caller's memory is full of a mark: its environment, its arguments. None of it is mapped in a program.
#[test]
fn nothing_of_the_callers_memory_is_in_a_program() {
    for who in Who::all() {
        let mark = unique();
        let backwards: String = mark.chars().rev().collect();
        let output = sandstorm(who)
            .env("SANDSTORM_TEST_CANARY", format!("MARK{mark}").repeat(1000))
            .args(["run", "-l", "python", "-c", LOOK, "--", &backwards])
            .output()
            .unwrap();
        assert_eq!(stdout(&output), "True 0\n", "{who:?}: {}", stderr(&output));
    }
}
