//! Tool instructions and tool calls. The two formats differ in the names of their tags.

use super::builder::{Builder, DSML, END_THINK, THINK};
use super::conversation::Call;
use super::dump::{Floats, json};

/// Tag names and spellings of one format.
pub(super) struct Markup {
    pub(super) calls: &'static str,
    pub(super) invoke: &'static str,
    pub(super) parameter: &'static str,
    pub(super) floats: Floats,
    /// An empty parameter list leaves an empty line.
    pub(super) line_for_no_parameters: bool,
}

impl Markup {
    fn open(&self, out: &mut Builder, tag: &str) {
        out.plain("<").special(DSML).plain(tag);
    }

    fn close(&self, out: &mut Builder, tag: &str) {
        out.plain("</").special(DSML).plain(tag).plain(">");
    }

    /// How to call tools, and their schemas.
    pub(super) fn instructions(&self, tools: &[serde_json::Value]) -> Builder {
        let mut out = Builder::default();
        out.plain(
            "## Tools\n\nYou have access to a set of tools to help answer the user's question. You can invoke \
             tools by writing a \"",
        );
        self.open(&mut out, self.calls);
        out.plain(">\" block like the following:\n\n");
        self.open(&mut out, self.calls);
        out.plain(">\n");
        self.open(&mut out, self.invoke);
        out.plain(" name=\"$TOOL_NAME\">\n");
        self.open(&mut out, self.parameter);
        out.plain(" name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE");
        self.close(&mut out, self.parameter);
        out.plain("\n...\n");
        self.close(&mut out, self.invoke);
        out.plain("\n");
        self.open(&mut out, self.invoke);
        out.plain(" name=\"$TOOL_NAME2\">\n...\n");
        self.close(&mut out, self.invoke);
        out.plain("\n");
        self.close(&mut out, self.calls);
        out.plain(
            "\n\nString parameters should be specified as is and set `string=\"true\"`. For all other types \
             (numbers, booleans, arrays, objects), pass the value in JSON format and set `string=\"false\"`.\n\n\
             If thinking_mode is enabled (triggered by ",
        );
        out.special(THINK).plain("), you MUST output your complete reasoning inside ");
        out.special(THINK).plain("...").special(END_THINK);
        out.plain(" BEFORE any tool calls or final response.\n\nOtherwise, output directly after ");
        out.special(END_THINK).plain(" with tool calls or final response.\n\n### Available Tool Schemas\n\n");
        for tool in tools {
            out.plain(&json(tool, self.floats)).plain("\n");
        }
        out.plain(
            "\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n",
        );
        out
    }

    /// The block of calls at the end of an answer.
    pub(super) fn calls(&self, calls: &[Call], out: &mut Builder) {
        if calls.is_empty() {
            return;
        }
        out.plain("\n\n");
        self.open(out, self.calls);
        out.plain(">\n");
        for call in calls {
            self.open(out, self.invoke);
            out.plain(" name=\"").plain(&call.name).plain("\">\n");
            for (name, value) in &call.arguments {
                self.open(out, self.parameter);
                let (is_string, text) = match value.as_str() {
                    Some(text) => ("true", text.to_owned()),
                    None => ("false", json(value, self.floats)),
                };
                out.plain(" name=\"")
                    .plain(name)
                    .plain("\" string=\"")
                    .plain(is_string)
                    .plain("\">")
                    .plain(&text);
                self.close(out, self.parameter);
                out.plain("\n");
            }
            if call.arguments.is_empty() && self.line_for_no_parameters {
                out.plain("\n");
            }
            self.close(out, self.invoke);
            out.plain("\n");
        }
        self.close(out, self.calls);
    }
}
