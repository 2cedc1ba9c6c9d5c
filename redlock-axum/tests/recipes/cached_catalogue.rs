use std::time::Duration;

use redlock_axum::{LockError, LockManager};
use tokio::sync::Mutex;

type Articles = Vec<&'static str>;

/// Reads the catalogue. The first caller that finds it empty rebuilds it.
async fn read(locks: &LockManager, catalogue: &Catalogue) -> Result<Articles, LockError> {
    let request = || locks.lock("catalogue").wait_time(Duration::from_secs(2));
    let reader = request().shared(true).acquire().await?;
    let articles = catalogue.articles().await;
    if let Err(error) = reader.release().await {
        tracing::warn!("{}", error.diagnostics());
    }
    if !articles.is_empty() {
        return Ok(articles);
    }
    let writer = request().acquire().await?;
    // Another writer may have been faster.
    if catalogue.articles().await.is_empty() {
        catalogue.rebuild().await;
    }
    let articles = catalogue.articles().await;
    if let Err(error) = writer.release().await {
        tracing::warn!("{}", error.diagnostics());
    }
    Ok(articles)
}

/// Stands for a table that all copies of the service use.
#[derive(Default)]
struct Catalogue(Mutex<Articles>);

impl Catalogue {
    async fn articles(&self) -> Articles {
        self.0.lock().await.clone()
    }

    async fn rebuild(&self) {
        for article in ["coat", "hat", "shoe"] {
            tokio::time::sleep(Duration::from_millis(5)).await; // the work
            self.0.lock().await.push(article);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use redlock_axum::MemoryNode;

    use super::*;

    /// A second rebuild would add the articles again, and a reader beside it would see a part of them.
    #[tokio::test]
    async fn the_catalogue_is_rebuilt_once_and_is_always_whole() {
        let (node, catalogue) = (MemoryNode::new(), Arc::new(Catalogue::default()));
        let mut readers = tokio::task::JoinSet::new();
        for _ in 0..2 {
            let locks = LockManager::builder().memory_node(&node).connect().await.unwrap();
            for _ in 0..8 {
                let (locks, catalogue) = (locks.clone(), Arc::clone(&catalogue));
                readers.spawn(async move { read(&locks, &catalogue).await.unwrap() });
            }
        }
        for articles in readers.join_all().await {
            assert_eq!(articles, ["coat", "hat", "shoe"]);
        }
    }
}
