"""The official OpenAI SDK against a frontend: python openai_sdk.py BASE_URL MODEL"""
import asyncio
import json
import sys

import openai
from pydantic import BaseModel

base, model = sys.argv[1], sys.argv[2]
client = openai.OpenAI(base_url=f"{base}/v1", api_key="none", max_retries=0, timeout=30)
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "w", "parameters": WEATHER}}]


def user(text):
    return [{"role": "user", "content": text}]


class Trip(BaseModel):
    city: str
    days: int


def models():
    assert model in [entry.id for entry in client.models.list()]
    assert client.models.retrieve(model).object == "model"


def chat():
    answer = client.chat.completions.create(model=model, messages=user("@@hello@@"))
    assert answer.choices[0].message.content == "hello" and answer.usage.completion_tokens == 5, answer
    stream = client.chat.completions.create(
        model=model, messages=user("@@hello@@"), stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "hello"
    assert chunks[-1].usage.completion_tokens == 5 and chunks[-2].choices[0].finish_reason == "stop"


def chat_tools():
    messages = user("@@calls@@")
    answer = client.chat.completions.create(model=model, messages=messages, tools=TOOLS)
    message = answer.choices[0].message
    assert answer.choices[0].finish_reason == "tool_calls" and len(message.tool_calls) == 2
    assert json.loads(message.tool_calls[0].function.arguments) == {"city": "Paris"}
    with client.chat.completions.stream(model=model, messages=messages, tools=[strict(TOOLS[0])]) as stream:
        final = stream.get_final_completion()
    assert [call.function.name for call in final.choices[0].message.tool_calls] == ["get_weather"] * 2
    # The conversation goes on with what the SDK gave back.
    history = [*messages, message.model_dump(exclude_none=True)]
    history += [{"role": "tool", "tool_call_id": call.id, "content": "18 C"} for call in message.tool_calls]
    answer = client.chat.completions.create(model=model, messages=[*history, *user("@@hello@@")], tools=TOOLS)
    assert answer.choices[0].message.content == "hello"


def strict(tool):
    return {"type": "function", "function": {**tool["function"], "strict": True}}


def structured():
    answer = client.chat.completions.parse(model=model, messages=user("@@json@@"), response_format=Trip)
    assert answer.choices[0].message.parsed == Trip(city="Paris", days=3)
    answer = client.responses.parse(model=model, input="@@json@@", text_format=Trip)
    assert answer.output_parsed == Trip(city="Paris", days=3)


def completions():
    answer = client.completions.create(model=model, prompt="@@hello@@", max_tokens=50)
    assert answer.choices[0].text == "hello"
    stream = client.completions.create(model=model, prompt="@@hello@@", stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == "hello"


def responses():
    answer = client.responses.create(model=model, input="@@hello@@", instructions="Be brief.")
    assert answer.output_text == "hello" and answer.status == "completed" and answer.usage.output_tokens == 5
    kinds = [event.type for event in client.responses.create(model=model, input="@@hello@@", stream=True)]
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed", kinds
    with client.responses.stream(model=model, input="@@hello@@") as stream:
        assert stream.get_final_response().output_text == "hello"
    tools = [{"type": "function", "name": "get_weather", "parameters": WEATHER, "strict": True}]
    items = user("@@calls@@")
    answer = client.responses.create(model=model, input=items, tools=tools)
    calls = [item for item in answer.output if item.type == "function_call"]
    assert [json.loads(call.arguments)["city"] for call in calls] == ["Paris", "Rome"]
    items = [*items, *(item.model_dump(exclude_none=True) for item in answer.output)]
    items += [{"type": "function_call_output", "call_id": call.call_id, "output": "18 C"} for call in calls]
    answer = client.responses.create(model=model, input=[*items, *user("@@hello@@")], tools=tools)
    assert answer.output_text == "hello"
    assert client.responses.input_tokens.count(model=model, input="hello").input_tokens > 5


def errors():
    for call, kind, code in [
        (lambda: client.chat.completions.create(model="nope", messages=user("x")), openai.NotFoundError, "model_not_found"),
        (lambda: client.chat.completions.create(model=model, messages=[]), openai.BadRequestError, None),
        (lambda: client.responses.create(model=model, input="x", previous_response_id="r"), openai.InternalServerError, "not_implemented"),
        (lambda: client.responses.retrieve("resp_1"), openai.NotFoundError, None),
        (lambda: client.embeddings.create(model=model, input="x"), openai.NotFoundError, None),
    ]:
        try:
            call()
        except kind as error:
            assert error.body and error.code == code, (error.body, error.code)
        else:
            raise AssertionError(f"{kind} was expected")


async def cancelled():
    """A stream that is given up, and one that is read to its end beside it."""
    async with openai.AsyncOpenAI(base_url=f"{base}/v1", api_key="none", max_retries=0) as client:

        async def read(limit):
            stream = await client.chat.completions.create(model=model, messages=user("@@drip@@"), stream=True)
            count = 0
            async for _ in stream:
                count += 1
                if count == limit:
                    await stream.close()
                    break
            return count

        task = asyncio.create_task(read(10**9))
        assert await read(3) == 3
        await asyncio.sleep(0.2)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            pass
        answer = await client.chat.completions.create(model=model, messages=user("@@hello@@"))
        assert answer.choices[0].message.content == "hello"


for part in [models, chat, chat_tools, structured, completions, responses, errors]:
    part()
asyncio.run(cancelled())
print("openai", openai.__version__)
