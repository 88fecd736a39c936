//! The call syntaxes and reasoning marks of the model families.

use std::sync::Arc;

use crate::block::{Block, HeaderCalls, HeaderTags, JsonCalls, NameEnd, ParameterHeader, Tagged, Tags};
use crate::schema::Types;
use crate::tools::Tools;

/// How a family writes tool calls.
#[derive(Debug)]
pub(crate) struct Dialect {
    /// Texts that begin a block; `true` when they are the beginning of a call already.
    pub(crate) opens: &'static [(&'static str, bool)],
    pub(crate) syntax: Syntax,
    /// An answer that begins with `{` or `[` is a block, too.
    pub(crate) bare: bool,
    /// The marks are special tokens, which the tokenizer leaves out of the text unless asked.
    pub(crate) special: bool,
}

#[derive(Debug)]
pub(crate) enum Syntax {
    Tagged(Tags),
    Header(HeaderTags),
    /// Objects up to one of these texts; with none, one object or list.
    Json(&'static [&'static str]),
    /// Messages in channels: a machine of its own.
    Channels,
}

/// How a family marks its thoughts.
#[derive(Debug)]
pub(crate) struct ReasoningTags {
    pub(crate) opens: &'static [&'static str],
    pub(crate) closes: &'static [&'static str],
    /// An answer begins inside the reasoning unless the prompt says otherwise.
    pub(crate) forced: bool,
    /// Calls are made from inside the reasoning, too.
    pub(crate) calls_inside: bool,
    pub(crate) special: bool,
}

impl Dialect {
    /// The block that the opening text number `open` begins; `lead` is that text with the layout before it.
    pub(crate) fn block(&'static self, open: usize, lead: String, tools: &Arc<Tools>) -> Block {
        let in_call = self.opens.get(open).is_some_and(|open| open.1);
        match &self.syntax {
            Syntax::Tagged(tags) => Block::Tagged(Tagged::new(tags, Arc::clone(tools), lead, in_call)),
            Syntax::Header(tags) => Block::Header(HeaderCalls::new(tags, lead, in_call)),
            Syntax::Json(close) => Block::Json(JsonCalls::new(close, lead)),
            Syntax::Channels => Block::Json(JsonCalls::new(&[], lead)),
        }
    }
}

const STRING: Types = Types {
    string: true,
    integer: false,
    number: false,
    boolean: false,
    null: false,
    object: false,
    array: false,
};

const fn json(opens: &'static [(&'static str, bool)], close: &'static [&'static str]) -> Dialect {
    Dialect { opens, syntax: Syntax::Json(close), bare: false, special: false }
}

const fn tagged(opens: &'static [(&'static str, bool)], tags: Tags) -> Dialect {
    Dialect { opens, syntax: Syntax::Tagged(tags), bare: false, special: false }
}

const fn header(opens: &'static [(&'static str, bool)], tags: HeaderTags) -> Dialect {
    Dialect { opens, syntax: Syntax::Header(tags), bare: false, special: false }
}

const fn dsml(close: &'static str) -> Tags {
    Tags {
        close,
        call: "<｜DSML｜invoke name=\"",
        name_end: NameEnd::Text("\">"),
        call_close: "</｜DSML｜invoke>",
        parameter: "<｜DSML｜parameter name=\"",
        header: ParameterHeader::Quoted,
        value_close: &["</｜DSML｜parameter>"],
        skip_newline: false,
        untyped: STRING,
    }
}

pub(crate) static HERMES: Dialect = json(&[("<tool_call>", false)], &["</tool_call>"]);
pub(crate) static NEMOTRON_DECI: Dialect = json(&[("<TOOLCALL>", false)], &["</TOOLCALL>"]);
pub(crate) static JAMBA: Dialect = json(&[("<tool_calls>", false)], &["</tool_calls>"]);
pub(crate) static PHI4: Dialect = json(&[("functools", false)], &[]);
pub(crate) static MISTRAL: Dialect = Dialect { special: true, ..json(&[("[TOOL_CALLS]", false)], &[]) };
pub(crate) static LLAMA3: Dialect = Dialect { bare: true, ..json(&[("<|python_tag|>", false)], &[]) };

pub(crate) static QWEN3_CODER: Dialect = tagged(
    &[("<tool_call>", false), ("<function=", true)],
    Tags {
        close: "</tool_call>",
        call: "<function=",
        name_end: NameEnd::Text(">"),
        call_close: "</function>",
        parameter: "<parameter=",
        header: ParameterHeader::Bare,
        value_close: &["\n</parameter>", "</parameter>"],
        skip_newline: true,
        untyped: STRING,
    },
);

pub(crate) static MINIMAX_M2: Dialect = tagged(
    &[("<minimax:tool_call>", false)],
    Tags {
        close: "</minimax:tool_call>",
        call: "<invoke name=\"",
        name_end: NameEnd::Text("\">"),
        call_close: "</invoke>",
        parameter: "<parameter name=\"",
        header: ParameterHeader::Quoted,
        value_close: &["\n</parameter>", "</parameter>"],
        skip_newline: true,
        untyped: STRING,
    },
);

pub(crate) static GLM: Dialect = tagged(
    &[("<tool_call>", true)],
    Tags {
        close: "</tool_call>",
        call: "<tool_call>",
        name_end: NameEnd::Child,
        call_close: "</tool_call>",
        parameter: "<arg_key>",
        header: ParameterHeader::Pair,
        value_close: &["</arg_value>"],
        skip_newline: false,
        untyped: Types::CONTAINERS,
    },
);

pub(crate) static DEEPSEEK_V3_2: Dialect = tagged(
    &[("<｜DSML｜function_calls>", false), ("<｜DSML｜invoke name=\"", true)],
    dsml("</｜DSML｜function_calls>"),
);

pub(crate) static DEEPSEEK_V4: Dialect = tagged(
    &[("<｜DSML｜tool_calls>", false), ("<｜DSML｜invoke name=\"", true)],
    dsml("</｜DSML｜tool_calls>"),
);

pub(crate) static DEEPSEEK_V41: Dialect = Dialect {
    special: true,
    ..tagged(
        &[("<｜DSML｜ calls>", false), ("<｜DSML｜ invoke name=\"", true)],
        Tags {
            call: "<｜DSML｜ invoke name=\"",
            call_close: "</｜DSML｜ invoke>",
            parameter: "<｜DSML｜ parameter name=\"",
            value_close: &["</｜DSML｜ parameter>"],
            ..dsml("</｜DSML｜ calls>")
        },
    )
};

pub(crate) static DEEPSEEK_V3: Dialect = header(
    &[("<｜tool▁calls▁begin｜>", false), ("<｜tool▁call▁begin｜>", true)],
    HeaderTags {
        between: &["<｜tool▁call▁begin｜>", "<｜tool▁calls▁end｜>"],
        separator: "<｜tool▁sep｜>",
        name_end: Some("```json"),
        call_close: "<｜tool▁call▁end｜>",
        identifier: false,
    },
);

pub(crate) static DEEPSEEK_V3_1: Dialect = header(
    &[("<｜tool▁calls▁begin｜>", false), ("<｜tool▁call▁begin｜>", true)],
    HeaderTags {
        between: &["<｜tool▁call▁begin｜>", "<｜tool▁calls▁end｜>"],
        separator: "<｜tool▁sep｜>",
        name_end: None,
        call_close: "<｜tool▁call▁end｜>",
        identifier: false,
    },
);

pub(crate) static KIMI_K2: Dialect = Dialect {
    special: true,
    ..header(
        &[
            ("<|tool_calls_section_begin|>", false),
            ("<|tool_call_section_begin|>", false),
            ("<|tool_call_begin|>", true),
        ],
        HeaderTags {
            between: &["<|tool_call_begin|>", "<|tool_calls_section_end|>", "<|tool_call_section_end|>"],
            separator: "<|tool_call_argument_begin|>",
            name_end: None,
            call_close: "<|tool_call_end|>",
            identifier: true,
        },
    )
};

pub(crate) static HARMONY: Dialect =
    Dialect { opens: &[], syntax: Syntax::Channels, bare: false, special: true };

const THINK: ReasoningTags = ReasoningTags {
    opens: &["<think>"],
    closes: &["</think>"],
    forced: false,
    calls_inside: false,
    special: false,
};

/// `<think>` … `</think>`, where the prompt or the answer opens it.
pub(crate) static PLAIN_THINK: ReasoningTags = THINK;
/// The same, open from the start.
pub(crate) static FORCED_THINK: ReasoningTags = ReasoningTags { forced: true, ..THINK };
/// The same as plain, and calls end or interrupt the thoughts.
pub(crate) static CALLING_THINK: ReasoningTags = ReasoningTags { calls_inside: true, ..THINK };
/// Open from the start, and calls end or interrupt the thoughts.
pub(crate) static FORCED_CALLING_THINK: ReasoningTags =
    ReasoningTags { forced: true, calls_inside: true, ..THINK };
/// [`CALLING_THINK`] and [`FORCED_CALLING_THINK`] for tokenizers that treat the marks as special.
pub(crate) static DEEPSEEK_V41_THINK: ReasoningTags =
    ReasoningTags { calls_inside: true, special: true, ..THINK };
pub(crate) static KIMI_K25_THINK: ReasoningTags =
    ReasoningTags { forced: true, calls_inside: true, special: true, ..THINK };
pub(crate) static KIMI_THINK: ReasoningTags =
    ReasoningTags { opens: &["◁think▷"], closes: &["◁/think▷"], ..THINK };
pub(crate) static MISTRAL_THINK: ReasoningTags = ReasoningTags {
    opens: &["[THINK]"],
    closes: &["[/THINK]"],
    forced: true,
    calls_inside: false,
    special: true,
};
pub(crate) static MINIMAX_M3_THINK: ReasoningTags = ReasoningTags {
    opens: &["<mm:think>"],
    closes: &["</mm:think>"],
    forced: false,
    calls_inside: true,
    special: true,
};
pub(crate) static GRANITE_THINK: ReasoningTags = ReasoningTags {
    opens: &["Here is my thought process:", "Here's my thought process:"],
    closes: &["Here is my response:", "Here's my response:"],
    ..THINK
};
pub(crate) static CHANNELS: ReasoningTags =
    ReasoningTags { opens: &[], closes: &[], forced: false, calls_inside: false, special: true };
