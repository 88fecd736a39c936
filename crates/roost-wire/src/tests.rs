//! Both ends over real sockets: our client with our listener, and each with a peer played by hand.

mod calls;
mod encryption;
mod faults;
mod flow;
mod harness;
mod listening;
mod losing;
mod pooling;
mod serving;
mod storm;
