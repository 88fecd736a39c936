//! OpenAI's Responses API: requests become chat requests, answers are written as its objects and events.
//!
//! Nothing is stored: what refers to an earlier response is refused.

mod echo;
mod events;
mod input;
mod items;
mod names;
mod object;
mod request;
mod tools;

pub use echo::ResponseEcho;
pub use events::ResponseEvents;
pub use object::ResponseAnswer;

#[cfg(test)]
mod tests;
