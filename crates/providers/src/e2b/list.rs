//! Our sandboxes there, page by page.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::stream::{self, BoxStream, StreamExt};
use sandstorm_provider::{ListFilter, OpContext, Result, Sandbox};

use super::cloud::{Cloud, MOST_PAGES};
use super::error::{of, senseless};
use super::view::{Listed, Marks};

/// A list on its way.
pub(super) struct Pages {
    cloud: Arc<Cloud>,
    query: String,
    /// Where the next page is; `None` behind the last one.
    next: Option<Option<String>>,
    read: usize,
}

impl Pages {
    /// Everything that has our mark.
    pub(super) fn of(cloud: &Arc<Cloud>) -> Self {
        Self { cloud: Arc::clone(cloud), query: cloud.all(), next: Some(None), read: 0 }
    }

    pub(super) async fn next(&mut self) -> Result<Option<Vec<Listed>>> {
        let Some(token) = self.next.take() else { return Ok(None) };
        self.read += 1;
        if self.read > MOST_PAGES {
            return Err(senseless("its list of sandboxes has no end"));
        }
        let (page, next) = self.cloud.client.page(&self.query, token.as_deref()).await.map_err(of)?;
        self.next = next.map(Some);
        Ok(Some(page))
    }
}

struct Rows {
    pages: Pages,
    cx: OpContext,
    filter: ListFilter,
    waiting: VecDeque<Sandbox>,
    over: bool,
}

impl Cloud {
    pub(super) fn list(
        self: &Arc<Self>,
        cx: &OpContext,
        filter: ListFilter,
    ) -> BoxStream<'static, Result<Sandbox>> {
        let pages = Pages::of(self);
        let rows = Rows { pages, cx: cx.clone(), filter, waiting: VecDeque::new(), over: false };
        stream::unfold(rows, |mut rows| async move {
            if rows.over {
                return None;
            }
            let next = rows.next().await.transpose()?;
            rows.over = next.is_err();
            let name = &rows.pages.cloud.info.name;
            Some((next.map_err(|error| error.with_operation("list").with_provider(name)), rows))
        })
        .boxed()
    }
}

impl Rows {
    async fn next(&mut self) -> Result<Option<Sandbox>> {
        loop {
            if let Some(sandbox) = self.waiting.pop_front() {
                return Ok(Some(sandbox));
            }
            let Some(page) = self.cx.run("list", self.pages.next()).await? else { return Ok(None) };
            let cloud = &self.pages.cloud;
            for theirs in page {
                // Whatever else they show is not ours.
                let Some(ours) = Marks(&cloud.owner).id(&theirs) else { continue };
                let seen = cloud.seen(ours, &theirs)?;
                if seen.labels.contains(&self.filter.labels) {
                    self.waiting.push_back(seen);
                }
            }
        }
    }
}
