/** A text field whose value goes out after a pause in typing. A value from outside shows unless someone is typing. */
import { TextInput, type TextInputProps } from "@mantine/core";
import { useDebouncedCallback } from "@mantine/hooks";
import { useState } from "react";

const PAUSE_MS = 250;

interface SettledInputProps extends Omit<TextInputProps, "value" | "onChange"> {
  readonly value: string;
  readonly onChange: (value: string) => void;
}

export function SettledInput({ value, onChange, ...rest }: SettledInputProps) {
  const [text, setText] = useState(value);
  const [isTyping, setTyping] = useState(false);
  const settle = useDebouncedCallback(onChange, PAUSE_MS);
  return (
    <TextInput
      {...rest}
      value={isTyping ? text : value}
      onChange={(event) => {
        setText(event.currentTarget.value);
        setTyping(true);
        settle(event.currentTarget.value);
      }}
      onBlur={() => {
        settle.flush();
        setTyping(false);
      }}
    />
  );
}
