//! The dialect over sandboxes in memory: what each plane answers, and to whom.

mod files;
mod hostile;
mod processes;
mod sandboxes;
mod walls;
mod world;
