//! Tools of a request: functions for the model, and the list as the answer shows it.

use std::borrow::Cow;

use bytes::{BufMut, Bytes, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::names::Names;
use crate::conversation::{raw_list, write_function};
use crate::fields::Fields;
use crate::{ApiError, FieldPolicy, Ignored, Raw, ToolChoice};

/// Most tools of one request.
const TOOL_LIMIT: usize = 1536;

/// What a request says of tools.
#[derive(Debug)]
pub(super) struct Tools {
    /// Functions in the chat API's form.
    pub(super) functions: Option<Raw>,
    pub(super) choice: ToolChoice,
    pub(super) names: Names,
    /// The list as it came, with the default of `strict`.
    pub(super) shown: Raw,
}

#[derive(Deserialize)]
struct Tool<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    name: Option<String>,
    #[serde(borrow)]
    description: Option<&'a RawValue>,
    #[serde(borrow)]
    parameters: Option<&'a RawValue>,
    #[serde(borrow)]
    strict: Option<&'a RawValue>,
    /// Of a namespace.
    #[serde(borrow)]
    tools: Option<Vec<Tool<'a>>>,
}

struct Function<'a> {
    space: Option<String>,
    name: String,
    members: [Option<&'a RawValue>; 3],
}

pub(super) fn take(
    fields: &mut Fields<'_>,
    policy: FieldPolicy,
    ignored: &mut Ignored,
) -> Result<Tools, ApiError> {
    let list: Vec<&RawValue> = match fields.raw("tools") {
        None => Vec::new(),
        Some(raw) => serde_json::from_str(raw.get())
            .map_err(|_| ApiError::invalid("tools", "`tools` must be a list"))?,
    };
    let mut functions = Vec::new();
    let mut shown = Vec::with_capacity(list.len());
    for (at, raw) in list.into_iter().enumerate() {
        let path = format!("tools[{at}]");
        let tool: Tool<'_> = serde_json::from_str(raw.get())
            .map_err(|_| ApiError::invalid(path.clone(), format!("`{path}` must be a tool with a `type`")))?;
        shown.push(show(&tool, raw));
        collect(tool, None, &path, &mut functions, policy, ignored)?;
    }
    if functions.len() > TOOL_LIMIT {
        return Err(ApiError::invalid("tools", format!("`tools` has more than {TOOL_LIMIT} functions")));
    }
    let identities: Vec<_> = functions.iter().map(|f| (f.space.clone(), f.name.clone())).collect();
    let names = Names::of(&identities);
    let (choice, allowed) = match fields.raw("tool_choice") {
        Some(raw) => tool_choice(raw, &names)?,
        None => (ToolChoice::Auto, None),
    };
    let mut items = Vec::with_capacity(functions.len());
    for function in &functions {
        let name = names.encode(function.space.as_deref(), &function.name);
        if allowed.as_ref().is_none_or(|allowed| allowed.iter().any(|allowed| allowed == name)) {
            let mut out = BytesMut::new();
            write_function(&mut out, name, function.members);
            items.push(out.freeze());
        }
    }
    if items.is_empty() && matches!(choice, ToolChoice::Required | ToolChoice::Named(_)) {
        return Err(ApiError::invalid("tool_choice", "this `tool_choice` needs `tools` with functions"));
    }
    Ok(Tools {
        functions: (!items.is_empty() && choice != ToolChoice::None).then(|| raw_list(&items)),
        choice,
        names,
        shown: raw_list(&shown),
    })
}

/// Adds a function, or those of a namespace. What runs on OpenAI's servers is never called here.
fn collect<'a>(
    tool: Tool<'a>,
    space: Option<&str>,
    path: &str,
    functions: &mut Vec<Function<'a>>,
    policy: FieldPolicy,
    ignored: &mut Ignored,
) -> Result<(), ApiError> {
    let name = |name: Option<String>| {
        let path = format!("{path}.name");
        name.filter(|name| !name.is_empty())
            .ok_or_else(|| ApiError::invalid(path.clone(), format!("missing field `{path}`")))
    };
    match &*tool.r#type {
        "function" => functions.push(Function {
            space: space.map(str::to_owned),
            name: name(tool.name)?,
            members: [tool.description, tool.parameters, tool.strict],
        }),
        "namespace" if space.is_none() => {
            let space = name(tool.name)?;
            for (at, inner) in tool.tools.unwrap_or_default().into_iter().enumerate() {
                let path = format!("{path}.tools[{at}]");
                collect(inner, Some(&space), &path, functions, policy, ignored)?;
            }
        }
        kind => {
            let shown: String = kind.chars().take(64).collect();
            let name = format!("{path} ({shown})");
            if policy == FieldPolicy::Refuse {
                return Err(ApiError::invalid(
                    path.to_owned(),
                    format!("`{path}`: tools of type `{shown}` are not available here, only functions"),
                ));
            }
            ignored.add(name);
        }
    }
    Ok(())
}

/// A tool as the answer shows it: functions are strict unless they say otherwise.
fn show(tool: &Tool<'_>, raw: &RawValue) -> Bytes {
    let text = raw.get();
    let inner = text.strip_suffix('}').map(str::trim_end);
    match inner {
        Some(inner)
            if &*tool.r#type == "function" && tool.strict.is_none() && !text.contains("\"strict\"") =>
        {
            let mut out = BytesMut::with_capacity(text.len() + 16);
            out.put_slice(inner.as_bytes());
            out.put_slice(b",\"strict\":true}");
            out.freeze()
        }
        _ => Bytes::copy_from_slice(text.as_bytes()),
    }
}

/// The choice, and the functions that it leaves.
fn tool_choice(raw: &RawValue, names: &Names) -> Result<(ToolChoice, Option<Vec<String>>), ApiError> {
    #[derive(Deserialize)]
    struct Choice<'a> {
        #[serde(borrow)]
        r#type: Cow<'a, str>,
        name: Option<String>,
        namespace: Option<String>,
        mode: Option<String>,
        #[serde(borrow)]
        tools: Option<Vec<Choice<'a>>>,
    }
    let wrong = || {
        ApiError::invalid(
            "tool_choice",
            "`tool_choice` must be none, auto, required, `{\"type\":\"function\",\"name\":…}` or `{\"type\":\"allowed_tools\",…}`",
        )
    };
    let mode = |mode: &str| match mode {
        "none" => Ok(ToolChoice::None),
        "auto" => Ok(ToolChoice::Auto),
        "required" => Ok(ToolChoice::Required),
        _ => Err(wrong()),
    };
    if let Ok(word) = serde_json::from_str::<String>(raw.get()) {
        return Ok((mode(&word)?, None));
    }
    let choice: Choice<'_> = serde_json::from_str(raw.get()).map_err(|_| wrong())?;
    let shown = |choice: &Choice<'_>| match (&*choice.r#type, &choice.name) {
        ("function", Some(name)) => Ok(names.encode(choice.namespace.as_deref(), name).to_owned()),
        _ => Err(wrong()),
    };
    match &*choice.r#type {
        "function" => Ok((ToolChoice::Named(shown(&choice)?), None)),
        "allowed_tools" => {
            let allowed: Vec<String> = choice.tools.iter().flatten().map(shown).collect::<Result<_, _>>()?;
            if allowed.is_empty() {
                return Err(wrong());
            }
            Ok((mode(choice.mode.as_deref().unwrap_or("auto"))?, Some(allowed)))
        }
        _ => Err(wrong()),
    }
}
