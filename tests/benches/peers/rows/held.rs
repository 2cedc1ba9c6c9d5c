//! To come.
pub(crate) async fn measure(_: &crate::settings::Settings) {}
