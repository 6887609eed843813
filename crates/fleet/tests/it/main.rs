//! A fleet over providers in memory, some of which have bad days.

mod moody;
mod placing;
mod whole;
