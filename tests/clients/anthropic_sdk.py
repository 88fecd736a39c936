"""The official Anthropic SDK against a frontend: python anthropic_sdk.py BASE_URL MODEL"""
import sys

import anthropic

base, model = sys.argv[1], sys.argv[2]
client = anthropic.Anthropic(base_url=base, api_key="none", max_retries=0, timeout=30)
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"name": "get_weather", "description": "w", "input_schema": SCHEMA}]


def user(text):
    return [{"role": "user", "content": text}]


def ask(text, **more):
    return dict(model=model, max_tokens=200, messages=user(text), **more)


def messages():
    answer = client.messages.create(**ask("@@hello@@", system=[{"type": "text", "text": "Be brief."}]))
    assert answer.content[0].text == "hello" and answer.stop_reason == "end_turn", answer
    assert answer.usage.output_tokens == 5
    answer = client.messages.create(**ask("@@hello@@", stop_sequences=["lo"]))
    assert (answer.content[0].text, answer.stop_reason, answer.stop_sequence) == ("hel", "stop_sequence", "lo")


def streams():
    with client.messages.stream(**ask("@@hello@@")) as stream:
        assert "".join(stream.text_stream) == "hello"
        final = stream.get_final_message()
    assert final.stop_reason == "end_turn" and final.usage.output_tokens == 5, final
    kinds = [event.type for event in client.messages.create(**ask("@@hello@@"), stream=True)]
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop", kinds


def tools():
    with client.messages.stream(**ask("@@calls@@", tools=TOOLS)) as stream:
        streamed = stream.get_final_message()
    answer = client.messages.create(**ask("@@calls@@", tools=TOOLS))
    for message in [streamed, answer]:
        assert message.stop_reason == "tool_use", message
        assert [block.input for block in message.content] == [{"city": "Paris"}, {"city": "Rome"}], message
    results = [{"type": "tool_result", "tool_use_id": block.id, "content": "18 C"} for block in answer.content]
    history = [
        *user("@@calls@@"),
        {"role": "assistant", "content": answer.content},
        {"role": "user", "content": [*results, {"type": "text", "text": "@@hello@@"}]},
    ]
    answer = client.messages.create(model=model, max_tokens=200, messages=history, tools=TOOLS)
    assert answer.content[0].text == "hello"


def counts():
    counted = client.messages.count_tokens(model=model, messages=user("@@hello@@"), tools=TOOLS).input_tokens
    usage = client.messages.create(**ask("@@hello@@", tools=TOOLS)).usage
    assert counted == usage.input_tokens + (usage.cache_read_input_tokens or 0), usage


def models():
    assert [entry.id for entry in client.models.list()] == [model]
    assert client.models.retrieve(model).display_name == model


def errors():
    for more, kind in [
        (dict(model="nope"), anthropic.NotFoundError),
        (dict(messages=[]), anthropic.BadRequestError),
        (dict(messages=[{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "http://x"}}]}]), anthropic.BadRequestError),
    ]:
        try:
            client.messages.create(**{**ask("x"), **more})
        except kind as error:
            assert error.body["type"] == "error" and error.body["error"]["message"], error.body
        else:
            raise AssertionError(f"{kind} was expected")


for part in [messages, streams, tools, counts, models, errors]:
    part()
print("anthropic", anthropic.__version__)
