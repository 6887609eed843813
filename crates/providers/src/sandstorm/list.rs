//! Our sandboxes there, page by page.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::stream::{self, BoxStream, StreamExt};
use sandstorm_client::SandboxQuery;
use sandstorm_provider::{ListFilter, OpContext, Result, Sandbox};

use super::client::{Far, MOST_PAGES};
use super::error::{of, senseless};
use super::view;

/// A list on its way.
struct Pages {
    far: Arc<Far>,
    cx: OpContext,
    filter: ListFilter,
    /// Where the next page is; `None` behind the last one.
    next: Option<SandboxQuery>,
    read: usize,
    waiting: VecDeque<Sandbox>,
}

impl Far {
    pub(super) fn list(
        self: &Arc<Self>,
        cx: &OpContext,
        filter: ListFilter,
    ) -> BoxStream<'static, Result<Sandbox>> {
        let mut query = self.all();
        query.labels.extend(filter.labels.iter().map(|(key, value)| (key.to_owned(), value.to_owned())));
        let pages = Pages {
            far: Arc::clone(self),
            cx: cx.clone(),
            filter,
            next: Some(query),
            read: 0,
            waiting: VecDeque::new(),
        };
        stream::unfold(pages, |mut pages| async move {
            let next = pages.next().await.transpose()?;
            if next.is_err() {
                pages.next = None;
                pages.waiting.clear();
            }
            Some((
                next.map_err(|error| error.with_operation("list").with_provider(&pages.far.info.name)),
                pages,
            ))
        })
        .boxed()
    }
}

impl Pages {
    async fn next(&mut self) -> Result<Option<Sandbox>> {
        loop {
            if let Some(sandbox) = self.waiting.pop_front() {
                return Ok(Some(sandbox));
            }
            let Some(query) = self.next.take() else { return Ok(None) };
            self.read += 1;
            if self.read > MOST_PAGES {
                return Err(senseless("its list of sandboxes has no end"));
            }
            let asking = async { self.far.client.sandboxes(&query).await.map_err(of) };
            let page = self.cx.run("list", asking).await?;
            self.next = page.next_cursor.map(|cursor| SandboxQuery { cursor: Some(cursor), ..query });
            for theirs in page.items {
                // Whatever else they show is not ours.
                let Some(ours) = view::our_id(&self.far.owner, &theirs) else { continue };
                if view::is_gone(theirs.state) {
                    continue;
                }
                self.far.places.add(view::place(ours, &theirs)?);
                let seen = self.far.seen(ours, &theirs)?;
                if seen.labels.contains(&self.filter.labels) {
                    self.waiting.push_back(seen);
                }
            }
        }
    }
}
