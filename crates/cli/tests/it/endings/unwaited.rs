//! Processor time of processes that nobody waits for.

use crate::support::{Who, result};

/// Each burns for a fifth of a second: one is a zombie when the program ends, one still runs, one has left the session, and the
/// child of one that ended before is PID 1's.
const CODE: &str = r"
import os, time
def burn():
    until = time.process_time() + 0.2
    while time.process_time() < until: pass
def child(work):
    if os.fork() == 0:
        try: work()
        finally: os._exit(0)
def zombie(): burn()
def runs():
    burn()
    open('ran', 'w')
    time.sleep(600)
def leaves():
    os.setsid()
    burn()
    open('left', 'w')
def orphan():
    child(lambda: (burn(), open('orphaned', 'w')))
for work in (zombie, runs, leaves, orphan): child(work)
while not all(os.path.exists(name) for name in ('ran', 'left', 'orphaned')): time.sleep(0.01)
burn()
";

#[test]
fn time_of_children_that_are_not_waited_for_is_counted() {
    for who in Who::all() {
        let result = result(who, &["--timeout", "60s", "-l", "python", "-c", CODE]);
        let counted = result["metrics"]["cpu_ms"].as_f64().unwrap_or_else(|| panic!("{who:?}: {result:#}"));
        // Five of them; the clocks of some kernels go in steps of ten milliseconds.
        assert!(counted >= 900.0, "{who:?}: {counted} ms: {result:#}");
    }
}
