//! What was measured, as JSON, as Markdown and as a chart.

mod chart;
mod markdown;

use std::path::Path;

use anyhow::Context;
use sandstorm_types::Timestamp;
use serde::Serialize;

use super::figures::Figures;
use super::promises::{self, Promise};

/// Figures with everything that one needs to judge them.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) date: String,
    pub(super) facts: Vec<(String, String)>,
    pub(super) method: Vec<String>,
    pub(super) promises: Vec<Promise>,
    pub(super) figures: Figures,
}

impl Report {
    pub(super) fn new(facts: Vec<(String, String)>, method: Vec<String>, figures: Figures) -> Self {
        let date = Timestamp::now().to_string().chars().take(10).collect();
        Self { date, facts, method, promises: promises::judge(&figures), figures }
    }

    pub(super) fn json(&self) -> anyhow::Result<String> {
        serde_json::to_string(self).context("the figures cannot be written as JSON")
    }

    pub(super) fn markdown(&self) -> String {
        markdown::page(self)
    }

    /// Writes all three beside each other.
    pub(super) fn keep(&self, folder: &Path) -> anyhow::Result<()> {
        std::fs::create_dir_all(folder).with_context(|| format!("could not make {}", folder.display()))?;
        let texts =
            [("json", self.json()? + "\n"), ("md", self.markdown()), ("svg", chart::draw(&self.figures))];
        for (ending, text) in texts {
            let path = folder.join(format!("{}-speed.{ending}", self.date));
            std::fs::write(&path, text).with_context(|| format!("could not write {}", path.display()))?;
        }
        Ok(())
    }
}
