//! The recipes of the guide. A file begins with the code of the page, if the page shows code, and then tests the recipe.

mod at_most_n_holders;
mod cached_catalogue;
mod demanded_lock;
mod idempotent_payment;
mod job;
mod leader;
mod middleware;
mod readiness;
mod several_locks;
mod two_managers;

const PAGE: &str = include_str!("../../docs/recipes.md");
/// The recipes with code, in the order of the page.
const FILES: [&str; 4] = [
    include_str!("idempotent_payment.rs"),
    include_str!("job.rs"),
    include_str!("two_managers.rs"),
    include_str!("at_most_n_holders.rs"),
];

#[test]
fn the_page_shows_the_code_that_is_tested() {
    let blocks = PAGE.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next());
    let blocks: Vec<_> = blocks.collect();
    assert_eq!(blocks.len(), FILES.len());
    for (block, file) in blocks.into_iter().zip(FILES) {
        assert!(file.starts_with(block), "the page and the test differ:\n{block}");
    }
}
