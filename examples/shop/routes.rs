//! The routes of the service.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequestParts, Path, Query, State};
use axum::http::request::Parts;
use axum::routing::{get, post};
use axum::{Json, RequestPartsExt, Router};
use futures_util::{StreamExt, stream};
use redlock_axum::{HeldLock, LockLayer, LockPolicy, SetupError, UnderLock, redis_lock};
use serde::{Deserialize, Serialize};
use tracing::info;

use crate::error::ShopError;
use crate::shop::Shop;
use crate::stock::Stock;

const ARTICLE: &str = "/articles/{sku}";
const ORDERS: &str = "/articles/{sku}/orders";
const REFILL: &str = "/articles/{sku}/refill";
const EXPORT: &str = "/export";
const REPORT: &str = "/reports/{name}";

pub(crate) fn app(shop: Shop, policies: Vec<LockPolicy>) -> Result<Router, SetupError> {
    let policies = LockLayer::table(&shop.locks, policies)?.on_reject(ShopError::from);
    // A policy for a route that does not exist would lock nothing.
    policies.check_routes([ARTICLE, ORDERS, REFILL, EXPORT, REPORT])?;
    Ok(Router::new()
        .route(ARTICLE, get(show).put(change))
        .route(ORDERS, post(order))
        .route(REFILL, post(refill))
        .route(EXPORT, get(export))
        .route(REPORT, post(report))
        .layer(policies) // after the last route, so that it reaches all of them
        .with_state(shop))
}

/// Shows an article. Reading needs no lock.
async fn show(article: Article) -> Json<Article> {
    Json(article)
}

/// Sells an article, to one customer at a time in all copies of the service. The others wait for
/// up to half a second, and are then refused with `ShopError::Lock`, because of its
/// `From<LockRejection>`.
///
/// The article is loaded `UnderLock`. As `article: Article` it would be loaded before the lock is acquired, so that two
/// customers at the same time would buy the same last article.
///
/// If the customer leaves in the middle of the payment, the order goes on to its end, because it is `detached`. If the lock
/// is lost, another customer may be buying, so the handler is stopped before it writes.
#[redis_lock(key = "stock:{sku:lower}", wait_time = "500ms", detached, on_lost = abort)]
async fn order(
    State(stock): State<Stock>,
    Path(sku): Path<String>,
    UnderLock(article): UnderLock<Article>,
    Query(work): Query<Work>,
) -> Result<Json<Article>, ShopError> {
    let left = article.left.checked_sub(1).ok_or(ShopError::SoldOut)?;
    info!("order: {sku}");
    work.run().await; // the payment
    stock.write(&sku, left);
    Ok(Json(Article { sku, left }))
}

/// Fills up an article. The method takes the lock, and its error is the error of this handler.
async fn refill(
    State(shop): State<Shop>,
    Path(sku): Path<String>,
) -> Result<Json<Article>, ShopError> {
    let left = shop.refill(&sku).await?;
    Ok(Json(Article { sku, left }))
}

/// Changes the stock, after a count of it by hand. `policies.toml` locks this route. Without its
/// policy the parameter `HeldLock` refuses every request.
pub(crate) async fn change(
    _lock: HeldLock,
    State(stock): State<Stock>,
    Path(sku): Path<String>,
    Query(Count { left }): Query<Count>,
) -> Result<Json<Article>, ShopError> {
    stock.read(&sku).ok_or(ShopError::UnknownArticle)?;
    stock.write(&sku, left);
    Ok(Json(Article { sku, left }))
}

/// Sends a line for each article. The lock is held until the last line is sent, because one export
/// at a time is enough for the database. A client that reads too slowly is cut off after ten minutes.
#[redis_lock(
    key = "export",
    renew,
    max_hold = "10m",
    on_lost = abort,
    hold_until = end_of_body
)]
async fn export(State(stock): State<Stock>, Query(work): Query<Work>) -> Result<Body, ShopError> {
    info!("export");
    let lines = stream::iter(stock.articles()).then(move |sku| {
        let stock = stock.clone();
        async move {
            work.run().await;
            let left = stock.read(sku).unwrap_or_default();
            Ok::<_, Infallible>(format!("{sku},{left}\n"))
        }
    });
    Ok(Body::from_stream(lines))
}

/// Sends a report. `policies.toml` locks this route.
async fn report(Path(name): Path<String>) -> String {
    format!("the {name} report is sent\n")
}

#[derive(Debug, Serialize)]
pub(crate) struct Article {
    pub(crate) sku: String,
    pub(crate) left: u32,
}

/// Loads the article that the path names.
impl FromRequestParts<Shop> for Article {
    type Rejection = ShopError;

    async fn from_request_parts(parts: &mut Parts, shop: &Shop) -> Result<Self, ShopError> {
        let path = parts.extract::<Path<String>>().await;
        let Path(sku) = path.map_err(|_| ShopError::UnknownArticle)?;
        let left = shop.stock.read(&sku).ok_or(ShopError::UnknownArticle)?;
        Ok(Self { sku, left })
    }
}

/// `?left=`
#[derive(Deserialize)]
pub(crate) struct Count {
    pub(crate) left: u32,
}

/// `?hold_ms=`, the time that a payment or a line of the export takes.
#[derive(Clone, Copy, Deserialize)]
struct Work {
    #[serde(default)]
    hold_ms: u64,
}

impl Work {
    async fn run(self) {
        tokio::time::sleep(Duration::from_millis(self.hold_ms)).await;
    }
}
