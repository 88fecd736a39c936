//! The hot paths as single steps, each ready to be run many times, so that a tool can count their instructions.
//!
//! Only what runs inside [`measured`] counts. Inputs follow from fixed seeds.

mod placing;
mod prompt;
mod tokens;

use std::hint::black_box;
use std::path::Path;

/// A step that is run again and again; it calls [`measured`] on the part that counts.
type Step<'a> = Box<dyn FnMut() -> anyhow::Result<()> + 'a>;

/// Runs a step as often as it should be.
type Runner<'a> = &'a mut dyn FnMut(Step<'_>) -> anyhow::Result<()>;

/// Something that happens for every request, token or event.
#[derive(Debug)]
pub struct HotPath {
    /// Its name in the budget file.
    pub name: &'static str,
    /// Steps that are run.
    pub steps: u64,
    /// What is counted in one step: tokens, blocks, or the step itself.
    pub units: u64,
    /// Whether it needs the files of a model.
    pub needs_model: bool,
    /// Prepares it and hands its step on.
    run: fn(&Path, Runner<'_>) -> anyhow::Result<()>,
}

impl HotPath {
    /// All of them.
    #[must_use]
    pub fn all() -> &'static [HotPath] {
        &[
            HotPath {
                name: "warm turn of 100k tokens",
                steps: 5,
                units: 1,
                needs_model: true,
                run: prompt::warm,
            },
            HotPath {
                name: "warm turn of 200k tokens",
                steps: 5,
                units: 1,
                needs_model: true,
                run: prompt::warm_long,
            },
            HotPath {
                name: "streamed token",
                steps: 20,
                units: tokens::FRAMES,
                needs_model: true,
                run: tokens::run,
            },
            HotPath {
                name: "placement on 64 ranks",
                steps: 200,
                units: 1,
                needs_model: false,
                run: placing::decision,
            },
            HotPath { name: "index lookup", steps: 200, units: 1, needs_model: false, run: placing::lookup },
            HotPath {
                name: "index block stored",
                steps: 200,
                units: placing::EVENT_BLOCKS,
                needs_model: false,
                run: placing::store,
            },
        ]
    }

    /// Runs all steps, and one before that does not count.
    ///
    /// # Errors
    /// The model's files cannot be used.
    pub fn run(&self, model: &Path) -> anyhow::Result<()> {
        (self.run)(model, &mut |mut step| {
            for _ in 0..=self.steps {
                step()?;
            }
            Ok(())
        })
    }
}

/// Runs the part of a step that counts. Counters know it by its name.
#[inline(never)]
pub fn measured<T>(step: impl FnOnce() -> T) -> T {
    // Not the last thing done, or the call could become a jump and leave nothing to count up to.
    black_box(step())
}
