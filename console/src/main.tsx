/** Where the console begins. */
import "@mantine/core/styles.css";
import "@mantine/notifications/styles.css";
import "./fonts.css";
import "./theme.css";

import { setNonce } from "get-nonce";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./app";

const nonce = document.querySelector<HTMLMetaElement>('meta[name="csp-nonce"]')?.content ?? "";
setNonce(nonce);

const root = document.getElementById("root");
if (root === null) throw new Error("the page has no #root");
createRoot(root).render(
  <StrictMode>
    <App nonce={nonce} />
  </StrictMode>,
);
