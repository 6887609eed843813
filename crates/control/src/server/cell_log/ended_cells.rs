//! Logs of cells that ended, the latest ones.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sandstorm_types::ExecId;

use super::CellLog;

/// Bytes of events that are kept in memory and in files, and how many files.
const MEMORY: usize = 16 << 20;
const DISK: u64 = 256 << 20;
const FILES: usize = 256;

#[derive(Debug, Default)]
pub(in crate::server) struct EndedCells(Mutex<Shelf>);

#[derive(Debug, Default)]
struct Shelf {
    logs: HashMap<ExecId, Arc<CellLog>>,
    order: VecDeque<(ExecId, Instant)>,
    memory: usize,
    disk: u64,
    files: usize,
}

impl EndedCells {
    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::server) fn keep(&self, exec: ExecId, log: Arc<CellLog>) {
        let mut shelf = self.shelf();
        let (memory, disk) = log.size();
        shelf.memory += memory;
        shelf.disk += disk;
        shelf.files += usize::from(disk > 0);
        shelf.logs.insert(exec, log);
        shelf.order.push_back((exec, Instant::now()));
        shelf.drop_while(|shelf, _| shelf.memory > MEMORY || shelf.disk > DISK || shelf.files > FILES);
    }

    pub(in crate::server) fn get(&self, exec: ExecId) -> Option<Arc<CellLog>> {
        self.shelf().logs.get(&exec).cloned()
    }

    /// Lets go of what ended longer than `age` ago.
    pub(in crate::server) fn forget_older_than(&self, age: Duration) {
        self.shelf().drop_while(|_, at| at.elapsed() > age);
    }
}

impl Shelf {
    fn drop_while(&mut self, too_much: impl Fn(&Self, Instant) -> bool) {
        while let Some((exec, at)) = self.order.front().copied() {
            if !too_much(self, at) {
                return;
            }
            self.order.pop_front();
            if let Some(log) = self.logs.remove(&exec) {
                let (memory, disk) = log.size();
                self.memory -= memory;
                self.disk -= disk;
                self.files -= usize::from(disk > 0);
            }
        }
    }
}
