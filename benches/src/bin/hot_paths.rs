//! Counts the instructions of the hot paths and holds them against their budgets.
//!
//! `cargo run --release -p roost-benches --bin hot_paths [-- MODEL_DIR]` runs every path under `valgrind
//! --tool=callgrind`, prints what one unit took beside its budget in `benches/budgets.toml`, and fails when one took
//! more than [`MARGIN`] above it. Instructions do not depend on what else the machine does. Without a model's files the
//! paths that need one are left out, without valgrind all of them; both are said.
//!
//! `hot_paths run NAME MODEL_DIR` runs one path without counting.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};
use roost_benches::hot::HotPath;

/// As in the shipped binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How far above its budget a path may be. Libraries choose their routines for copying and searching by the processor, so that
/// another machine counts a few per cent more or less; work that is done twice is far beyond this.
const MARGIN: f64 = 0.25;

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["run", name, model] => {
            let path = HotPath::all().iter().find(|path| path.name == *name).context("no such path")?;
            path.run(Path::new(model))?;
            Ok(ExitCode::SUCCESS)
        }
        [] => check(Path::new("")),
        [model] => check(Path::new(model)),
        _ => bail!("usage: hot_paths [MODEL_DIR]"),
    }
}

fn budgets() -> Result<BTreeMap<String, f64>> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("budgets.toml");
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let entries = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    entries.map(entry).collect::<Result<_>>().with_context(|| file.display().to_string())
}

/// A line of the file: a name in quotes and a number.
fn entry(line: &str) -> Result<(String, f64)> {
    let (name, number) = line.split_once('=').with_context(|| line.to_owned())?;
    let number = number.trim().replace('_', "");
    Ok((name.trim().trim_matches('"').to_owned(), number.parse().with_context(|| line.to_owned())?))
}

fn check(model: &Path) -> Result<ExitCode> {
    let budgets = budgets()?;
    let mut out = std::io::stdout().lock();
    if Command::new("valgrind").arg("--version").stdout(Stdio::null()).status().is_err() {
        writeln!(out, "instruction budgets: skipped, valgrind is not installed")?;
        return Ok(ExitCode::SUCCESS);
    }
    let has_model = model.join("tokenizer.json").is_file();
    let mut within = true;
    writeln!(out, "| path | instructions | budget | of it |\n| --- | ---: | ---: | ---: |")?;
    for path in HotPath::all() {
        let budget = *budgets.get(path.name).with_context(|| format!("no budget for {:?}", path.name))?;
        if path.needs_model && !has_model {
            writeln!(out, "| {} | skipped: no model | {budget:.0} | |", path.name)?;
            continue;
        }
        let used = count(path, model)?;
        let over = used > budget * (1.0 + MARGIN);
        let remark = match used / budget {
            _ if over => " **over**",
            share if share < 1.0 - MARGIN => " (lower the budget)",
            _ => "",
        };
        writeln!(out, "| {} | {used:.0} | {budget:.0} | {:.2}{remark} |", path.name, used / budget)?;
        out.flush()?;
        within &= !over;
    }
    Ok(if within { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Instructions that one unit of a path takes.
fn count(path: &HotPath, model: &Path) -> Result<f64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg("--toggle-collect=roost_benches::hot::measured*")
        .arg(std::env::current_exe()?)
        .args(["run", path.name])
        .arg(model)
        // The encoder spreads long texts over processors; what runs elsewhere would not be counted.
        .env("FASTOKENS_BPE_THREADS", "1")
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {said}", path.name);
    let collected = said.lines().find_map(|line| line.split_once("Collected :")).context("no count")?.1;
    let instructions: f64 = collected.trim().parse().with_context(|| collected.to_owned())?;
    ensure!(instructions > 0.0, "nothing was counted: is `measured` still a function of its own?");
    Ok(instructions / ((path.steps + 1) * path.units) as f64)
}
