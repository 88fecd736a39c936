//! Who may come in: API keys, and web pages of other origins.

mod cors;
mod keys;

pub use self::cors::CorsOrigins;
pub(crate) use self::cors::layer as cors;
pub use self::keys::ApiKeys;
pub(crate) use self::keys::authorize;
