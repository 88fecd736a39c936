mod events;
mod files;
mod harness;
mod lifecycle;
mod misbehaviour;
mod requests;
