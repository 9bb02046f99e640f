function n(){return null}export{n as Events};
