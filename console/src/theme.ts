/** Type, colours and shapes of the console. What CSS can say better is in `theme.css`. */
import { createTheme, type MantineColorsTuple } from "@mantine/core";

/** The colour of what can be clicked, and of the logo. White on its shades 6 to 9 has a contrast of at least 4.5. */
const gate: MantineColorsTuple = [
  "#e8f6f3",
  "#cfeae4",
  "#a3d8cd",
  "#72c4b4",
  "#43af9c",
  "#219986",
  "#0f7f70",
  "#0b6a5e",
  "#085349",
  "#053c35",
];

/** Neutrals with a little of the same green. */
const gray: MantineColorsTuple = [
  "#f6f8f6",
  "#eef1ee",
  "#e3e7e3",
  "#d5dbd6",
  "#bfc7c1",
  "#9aa39c",
  "#77807a",
  "#545d57",
  "#3a423d",
  "#232925",
];

const dark: MantineColorsTuple = [
  "#e1e7e3",
  "#b9c2bc",
  "#959f98",
  "#6d7771",
  "#39423d",
  "#29312d",
  "#1d2421",
  "#161c19",
  "#101512",
  "#0a0e0c",
];

export const theme = createTheme({
  primaryColor: "gate",
  primaryShade: { light: 7, dark: 6 },
  colors: { gate, gray, dark },
  fontFamily: "Geist, system-ui, sans-serif",
  fontFamilyMonospace: '"Geist Mono", ui-monospace, Menlo, Consolas, monospace',
  headings: { fontFamily: "Geist, system-ui, sans-serif", fontWeight: "640" },
  defaultRadius: "md",
  radius: { sm: "5px", md: "7px", lg: "10px" },
  cursorType: "pointer",
  respectReducedMotion: true,
  components: {
    Modal: { defaultProps: { closeButtonProps: { "aria-label": "Close" } } },
    Notification: { defaultProps: { closeButtonProps: { "aria-label": "Close" } } },
    Drawer: { defaultProps: { closeButtonProps: { "aria-label": "Close" } } },
    Card: { defaultProps: { radius: "lg" } },
    Anchor: { defaultProps: { inherit: true } },
    Badge: { defaultProps: { tt: "none", fw: 550 } },
  },
});
