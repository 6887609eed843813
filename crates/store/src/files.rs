//! Which files were written through the API.

use sandstorm_types::{SandboxId, TenantId, Timestamp};

use crate::database::sql;
use crate::writing::Done;
use crate::{Result, Store};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotedFile {
    pub path: String,
    pub size: u64,
    pub at: Timestamp,
}

impl Store {
    /// A path that is noted again replaces its size and time.
    pub async fn note_file(
        &self,
        tenant: TenantId,
        sandbox: SandboxId,
        path: &str,
        size: u64,
        at: Timestamp,
    ) -> Result<()> {
        let text = "INSERT INTO files (tenant, sandbox, path, size, at) VALUES ($1, $2, $3, $4, $5)
            ON CONFLICT (tenant, sandbox, path) DO UPDATE SET size = excluded.size, at = excluded.at";
        let note = sql(text).bind(tenant).bind(sandbox).bind(path).bind(size).bind(at);
        self.write(None, async move |writing| {
            writing.run(note.clone()).await?;
            Ok(Done::Keep(()))
        })
        .await
    }

    /// By path.
    pub async fn noted_files(&self, tenant: TenantId, sandbox: SandboxId) -> Result<Vec<NotedFile>> {
        let query = sql("SELECT * FROM files WHERE tenant = $1 AND sandbox = $2 ORDER BY path");
        let rows = self.database().rows(query.bind(tenant).bind(sandbox)).await?;
        let read = rows
            .iter()
            .map(|row| Ok(NotedFile { path: row.get("path")?, size: row.get("size")?, at: row.get("at")? }));
        read.collect()
    }
}
